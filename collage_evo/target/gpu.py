"""The GPU that CUDA's driver gives: what it is, or why there is none. Asks the driver itself, loads no library."""

from __future__ import annotations

import ctypes
from functools import cache

from collage_evo.errors import UnavailableError

_MAJOR, _MINOR = 75, 76
"""CUDA's numbers of the attributes that make up the compute capability."""


@cache
def describe_gpu() -> str:
    """Model, compute capability and the driver's CUDA version of the first GPU.

    Raises:
        UnavailableError: there is none; the message says what is missing.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UnavailableError("the NVIDIA driver's libcuda.so.1 is not installed") from None
    name = ctypes.create_string_buffer(256)
    count, device, version, major, minor = (ctypes.c_int(0) for _ in range(5))
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise UnavailableError("the NVIDIA driver finds no device")
    asked = (
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDeviceGetName(name, len(name), device),
        driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
        driver.cuDriverGetVersion(ctypes.byref(version)),
    )
    if any(asked):
        raise UnavailableError(f"the NVIDIA driver does not describe its device (CUDA error {max(asked)})")
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return f"{name.value.decode(errors='replace')}, compute capability {major.value}.{minor.value}, CUDA {cuda}"
