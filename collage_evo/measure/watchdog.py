"""Watchdog that kills a worker process whose run takes far too long: a library's call cannot be interrupted
otherwise."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Iterator

from collage_evo.runtime.timing import WARM_UP_GAIN

LEAST_S = 5.0
"""Seconds that any run may take."""
LEAST_ON_DEVICE_S = 30.0
"""Seconds that any first run on a device may take: libraries load kernels then, and select the fastest."""


def timeout_s(give_up_ms: float, on_device: bool = False) -> float:
    """Timeout of a first run in seconds, if a warm run longer than ``give_up_ms`` is too slow."""
    return max(LEAST_ON_DEVICE_S if on_device else LEAST_S, WARM_UP_GAIN * give_up_ms / 1e3)


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Context in which ``SIGALRM`` kills the process after this time; its parent sees the signal."""
    if not math.isfinite(seconds):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
