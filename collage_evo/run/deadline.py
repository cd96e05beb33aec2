"""Deadline of a run: at its end the best answer so far is the answer. Its clock stands still while the run waits for
another one.
"""

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

from collage_evo.runtime.manifest import BEST

LEAD_S = 2.0
"""Seconds before the end at which a run is stopped: what started it, and what ends its processes, take as long."""
CHECK_S = 0.5
"""Interval in seconds at which a run is looked at whose end was put off. Chosen."""
_END: ContextVar[float] = ContextVar("end", default=math.inf)
"""The clock's time at which the work of this thread is to end."""
_waited_s = 0.0


class TimeIsOver(BaseException):
    """Raised in the main thread at the deadline. Like ``KeyboardInterrupt`` it is no error of the run."""


def raise_time_is_over() -> NoReturn:
    """Raise ``TimeIsOver``."""
    raise TimeIsOver


def _clock() -> float:
    return time.monotonic() - _waited_s


def pause(seconds: float) -> None:
    """Put the deadline off, as this process waited so long for another run."""
    global _waited_s
    _waited_s += seconds


def seconds_left() -> float:
    """Seconds until the deadline; infinite without one."""
    return _END.get() - _clock()


@contextlib.contextmanager
def part_of_time(share: float) -> Iterator[None]:
    """Context whose :func:`seconds_left` are this share of those outside. Nothing ends it."""
    token = _END.set(_clock() + share * seconds_left())
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
    seconds: float | None,
    end: Callable[[], NoReturn] = raise_time_is_over,
    spent_s: float = 0.0,
    directory: Path | None = None,
) -> Iterator[None]:
    """Context that calls ``end`` in the main thread after ``seconds``, less ``LEAD_S`` and ``spent_s``.

    A run in ``directory`` that has no answer yet ends with its first one, at most ``seconds`` later. Other threads,
    and systems without ``SIGALRM``, only have the plan that a run makes of its time.
    """
    if seconds is None:
        yield
        return
    left_s = max(0.1, seconds - LEAD_S - spent_s)
    token = _END.set(_clock() + left_s)
    end_at = _END.get()

    def check() -> None:
        awaited = directory is not None and not (directory / BEST).exists()
        if _clock() < end_at + (seconds if awaited else 0.0):
            return
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        end()

    try:
        with _alarm(left_s, check):
            yield
    finally:
        _END.reset(token)


@contextlib.contextmanager
def _alarm(seconds: float, check: Callable[[], None]) -> Iterator[None]:
    """Context that calls ``check`` after ``seconds``, and again every ``CHECK_S``."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    before = signal.signal(signal.SIGALRM, lambda number, frame: check())
    signal.setitimer(signal.ITIMER_REAL, seconds, CHECK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
