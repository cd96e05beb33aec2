"""Times copies between the host's memory and a device's: takes a device and a size, gives raw times."""

from __future__ import annotations

import time

from collage_evo.devices.device import Device

WARM_UP = 3


def time_copies(device: Device, nbytes: int, to_device: bool, runs: int) -> tuple[float, ...]:
    """Milliseconds of each of ``runs`` copies of ``nbytes``, from or to page-locked memory, the first ones left out.

    A copy to the device takes its place among the device's work, which nobody waits for: it is timed by events. What
    comes back is waited for: it is timed until it is there.
    """
    array = device.arena(nbytes)(0, (nbytes,), "uint8")
    host = device.pinned(nbytes)
    times = []
    for _ in range(WARM_UP + runs):
        device.synchronise()
        if to_device:
            times.append(device.time_ms(lambda: device.copy_in(array, host)))
            continue
        begin = time.perf_counter()
        device.copy_out(host, array)
        device.synchronise()
        times.append((time.perf_counter() - begin) * 1e3)
    return tuple(times[WARM_UP:])
