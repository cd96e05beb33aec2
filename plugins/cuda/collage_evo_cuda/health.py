"""Clocks of an NVIDIA GPU and the reasons for low ones, from NVML by ctypes. Read-only; optional."""

from __future__ import annotations

import ctypes
from functools import cache

from collage_evo_cuda.device import Health

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "clocks bound to those of another GPU",
    0x20: "thermal limit of the driver",
    0x40: "thermal limit of the hardware",
    0x80: "power brake",
}
"""nvml.h's bits of the reasons for low clocks during work, without idle and clocks that a user has set."""


@cache
def load_nvml() -> ctypes.CDLL | None:
    """The initialised NVML; None where there is none."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


class Gauges:
    """NVML's readings of one GPU.

    Args:
        bus: PCI bus id, which identifies the GPU in CUDA and NVML whatever ``CUDA_VISIBLE_DEVICES`` is.
    """

    def __init__(self, bus: str) -> None:
        self._library = load_nvml()
        self._gpu = ctypes.c_void_p()
        if self._library is not None and self._library.nvmlDeviceGetHandleByPciBusId_v2(
            bus.encode(), ctypes.byref(self._gpu)
        ):
            self._library = None

    def read(self) -> Health:
        """Present clock and reasons; empty where NVML does not report them."""
        library = self._library
        if library is None:
            return Health()
        clock, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        if library.nvmlDeviceGetClockInfo(self._gpu, _SM_CLOCK, ctypes.byref(clock)):
            clock.value = 0
        # Drivers before 535 have only the older name.
        ask = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
        if (ask or library.nvmlDeviceGetCurrentClocksThrottleReasons)(self._gpu, ctypes.byref(reasons)):
            reasons.value = 0
        return Health(clock.value, tuple(words for bit, words in _REASONS.items() if reasons.value & bit))
