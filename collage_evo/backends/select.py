"""Which backends take part in a run, and whether its device is there."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend, probe_all
from collage_evo.errors import ConfigError, UnavailableError


def select_backends(names: Sequence[str]) -> tuple[Backend, ...]:
    """The backends asked for by name; every usable one when none is named.

    Raises:
        ConfigError: a name is not known.
        UnavailableError: a backend asked for by name cannot be used, or none can.
    """
    if not names:
        usable = tuple(get_backend(name) for name, probe in probe_all() if probe.available)
        if not usable:
            raise UnavailableError('no backend is usable here: install some with pip install "collage-evo[cpu]"')
        return usable
    chosen = tuple(get_backend(name) for name in dict.fromkeys(names))
    for backend in chosen:
        probe = backend.probe()
        if not probe.available:
            raise UnavailableError(f"backend '{backend.name}' cannot be used: {probe.reason}")
    return chosen


def require_tuners(backends: Sequence[Backend], trials: Iterable[str]) -> None:
    """Make sure that every backend in ``trials`` takes part and has something to tune.

    Raises:
        ConfigError: it does not.
    """
    names = {backend.name: backend for backend in backends}
    for name in trials:
        if name not in names:
            raise ConfigError(f"backends.{name}.trials: {name} does not take part; there are {', '.join(names)}")
        if names[name].tuner() is None:
            raise ConfigError(f"backends.{name}.trials: {name} has nothing to tune; leave the key out")


def require_device(device: str) -> None:
    """Make sure that the device is there and that some backend runs on it.

    Raises:
        UnavailableError: it says what is missing and what to use instead.
    """
    if device == "cpu":
        return
    if missing := _cuda_missing():
        raise UnavailableError(
            f"target cuda: no CUDA device here ({missing}); use a machine that has one, "
            "or a CPU configuration such as configs/resnet_cpu.yaml"
        )
    if not any(device in probe.devices for _, probe in probe_all()):
        raise UnavailableError(
            "target cuda: a CUDA device is there, but no installed backend runs on it; "
            "use a CPU configuration such as configs/resnet_cpu.yaml"
        )


def _cuda_missing() -> str:
    """Why CUDA cannot be used, asked of the driver itself; empty when it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "the NVIDIA driver's libcuda.so.1 is not installed"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver finds no device"
    return ""
