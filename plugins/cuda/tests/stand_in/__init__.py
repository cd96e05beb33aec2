"""A CUDA driver for tests (its rules: ``fake.h``), in this process or in those that it starts, and NVML beside it."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest

from collage_evo_cuda import driver, gpu, health
from collage_evo_cuda import open as opened
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceArray

_SOURCES = Path(__file__).parent
_PARTS = {"libcuda.so.1": ("driver.c", "memory.c", "stream.c", "work.c"), "libnvidia-ml.so.1": ("nvml.c",)}
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Call:
    """A call of the driver: its name (without _v2), the bytes it was about, and CUDA's error (0: none)."""

    name: str
    nbytes: int
    error: int


@dataclass(frozen=True)
class FakeCuda:
    """The compiled libraries, in a folder of their own."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a process that is started needs in its environment to have this driver."""
        path = ":".join(filter(None, (str(self.folder), os.environ.get("LD_LIBRARY_PATH"))))
        return {"LD_LIBRARY_PATH": path}

    @contextmanager
    def used(self, **settings: object) -> Iterator[FakeCuda]:
        """This process has the driver meanwhile, and so have those that it starts.

        Args:
            settings: as environment variables without FAKE: ``cuda_lazy=1``, ``cuda_bytes=N``, ``cuda_devices=0``,
                ``cuda_capability="7.0"``, ``cuda_compute_mode=3``, ``nvml_mhz=N``, ``nvml_reasons=BITS``,
                ``cuda_trace=FILE`` (of all calls).
        """
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.environment, **_variables(settings)}.items():
                patch.setenv(name, value)
            patch.setattr(driver, "LIBRARY", str(self.folder / "libcuda.so.1"))
            patch.setattr(health, "LIBRARY", str(self.folder / "libnvidia-ml.so.1"))
            patch.setattr(opened, "_open", {})
            forget_driver()
            self._library.fake_cuda_reset()
            try:
                yield self
            finally:
                self._library.fake_cuda_reset()
                forget_driver()

    @property
    def _library(self) -> ctypes.CDLL:
        library = ctypes.CDLL(str(self.folder / "libcuda.so.1"))
        library.fake_cuda_trace.restype, library.fake_cuda_live.restype = ctypes.c_char_p, ctypes.c_size_t
        return library

    def trace(self) -> list[Call]:
        """The calls of this process since the driver was taken into use."""
        return read_trace(self._library.fake_cuda_trace().decode())

    def counts(self) -> Counter[str]:
        """How often each function was called."""
        return Counter(call.name for call in self.trace())

    @property
    def live_bytes(self) -> int:
        """Bytes of device memory that this process has."""
        gc.collect()
        return int(self._library.fake_cuda_live())


class HostFunction:
    """A function of the host that runs in a stream's order. To be held for as long as the stream may run it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._error: BaseException | None = None
        self._number = next(_numbers)
        _functions[self._number] = self

    def run(self) -> None:
        """What the driver calls."""
        try:
            self._function()
        except BaseException as error:
            self._error = error

    def enqueue(self, stream: int) -> None:
        """Enqueue it. What it raised when it ran is raised the next time."""
        if self._error is not None:
            raise self._error
        launch = driver.cuda_driver().library.cuLaunchHostFunc
        launch.argtypes = (ctypes.c_void_p, _HostFunction, ctypes.c_void_p)
        driver.cuda_driver().check(launch(stream, _entry, self._number), "cuLaunchHostFunc")


_numbers = count(1)
_functions: WeakValueDictionary[int, HostFunction] = WeakValueDictionary()
# One entry for all, which stays: a stream that runs a function that is gone is told so, and does not crash.
_entry = _HostFunction(lambda number: _functions[number].run())


def host_view(array: DeviceArray) -> np.ndarray:
    """The values of an array of the fake device, to read and to write, as a host function does."""
    raw = (ctypes.c_uint8 * array.nbytes).from_address(array.pointer)
    raw.owner = array.owner  # type: ignore[attr-defined]
    return np.ndarray(array.shape, array.dtype, buffer=raw)


def values(device: Device, array: DeviceArray) -> np.ndarray:
    """What an array holds, wherever it lies."""
    back = np.empty(array.shape, array.dtype)
    device.copy_out(back, array)
    device.synchronise()
    return back


def compile_fake(folder: Path) -> FakeCuda:
    """The libraries, compiled into a folder."""
    for library, parts in _PARTS.items():
        sources = [str(_SOURCES / part) for part in parts]
        flags = ("-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-pthread")
        subprocess.run(("gcc", *flags, "-o", str(folder / library), *sources), check=True)
    return FakeCuda(folder)


def read_trace(text: str) -> list[Call]:
    """Calls from the text that the driver writes of them."""
    rows = (line.split() for line in text.splitlines())
    return [Call(name, int(nbytes), int(error)) for name, nbytes, error in rows]


def forget_driver() -> None:
    """Let go of what was asked of a driver before."""
    for cached in (driver.cuda_driver, gpu.gpu_capability, gpu.describe_gpu, health.load_nvml):
        cached.cache_clear()
    gc.collect()


def _variables(settings: dict[str, object]) -> dict[str, str]:
    return {f"FAKE_{name.upper()}": str(value) for name, value in settings.items()}
