"""Ends a measuring process whose run takes far too long: what a library does cannot be interrupted otherwise."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Iterator

from collage_evo.runtime.timing import WARM_UP_GAIN

LEAST_S = 5.0
"""Any run may take so long."""
LEAST_ON_DEVICE_S = 30.0
"""Any first run on a device: libraries load kernels then, and try which of them is the fastest."""


def timeout_s(give_up_ms: float, on_device: bool = False) -> float:
    """What a first run may take, in seconds, where one of more than ``give_up_ms`` once it is warm is too slow."""
    return max(LEAST_ON_DEVICE_S if on_device else LEAST_S, WARM_UP_GAIN * give_up_ms / 1e3)


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """The process is killed by ``SIGALRM`` if it is in this context for longer; whoever started it sees that."""
    if not math.isfinite(seconds):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
