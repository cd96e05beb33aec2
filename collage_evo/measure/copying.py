"""Timing of copies between host memory and a device's memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from collage_evo.devices.device import Device
from collage_evo.runtime.timing import DEVICE_WARM_UP_S

WARM_UP = 3


def time_copies(
    device: Device, nbytes: int, to_device: bool, runs: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Milliseconds of each of ``runs`` copies of ``nbytes``, from or to page-locked memory, without the warm-up runs.

    The device warms up because the clocks of an idle one, and its bus's pace, may have fallen. A copy to the device
    is queued with the device's work, and no one waits for it: events time it. The host waits for a copy from the
    device: the clock times it until the data has arrived.
    """
    array = device.arena(nbytes)(0, (nbytes,), "uint8")
    host = device.pinned(nbytes)

    def once() -> float:
        device.synchronise()
        if to_device:
            return device.time_ms(lambda: device.copy_in(array, host))
        begin = time.perf_counter()
        device.copy_out(host, array)
        device.synchronise()
        return (time.perf_counter() - begin) * 1e3

    began, warm = clock(), 0
    while warm < WARM_UP or clock() - began < DEVICE_WARM_UP_S:
        once()
        warm += 1
    return tuple(once() for _ in range(runs))
