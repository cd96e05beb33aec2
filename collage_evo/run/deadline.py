"""Deadline of a run: at its end the best answer so far is the answer."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn

LEAD_S = 2.0
"""Seconds before the end at which a run is stopped: what started it, and what ends its processes, take as long."""
_END: ContextVar[float] = ContextVar("end", default=math.inf)
"""``time.monotonic()`` at which the work of this thread is to end."""


class TimeIsOver(BaseException):
    """Raised in the main thread at the deadline. Like ``KeyboardInterrupt`` it is no error of the run."""


def raise_time_is_over() -> NoReturn:
    """Raise ``TimeIsOver``."""
    raise TimeIsOver


def seconds_left() -> float:
    """Seconds until the deadline; infinite without one."""
    return _END.get() - time.monotonic()


@contextlib.contextmanager
def part_of_time(share: float) -> Iterator[None]:
    """Context whose :func:`seconds_left` are this share of those outside. Nothing ends it."""
    token = _END.set(time.monotonic() + share * seconds_left())
    try:
        yield
    finally:
        _END.reset(token)


def process_age_s() -> float:
    """Seconds since this process began (Linux; elsewhere 0.0): imports take some of them on a busy machine."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return 0.0


@contextlib.contextmanager
def deadline(
    seconds: float | None, end: Callable[[], NoReturn] = raise_time_is_over, spent_s: float = 0.0
) -> Iterator[None]:
    """Context that calls ``end`` in the main thread after ``seconds``, less ``LEAD_S`` and ``spent_s``.

    Other threads, and systems without ``SIGALRM``, only have the plan that a run makes of its time.
    """
    if seconds is None:
        yield
        return
    left_s = max(0.1, seconds - LEAD_S - spent_s)
    token = _END.set(time.monotonic() + left_s)
    try:
        with _alarm(left_s, end):
            yield
    finally:
        _END.reset(token)


@contextlib.contextmanager
def _alarm(seconds: float, end: Callable[[], NoReturn]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    before = signal.signal(signal.SIGALRM, lambda number, frame: end())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
