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
from typing import NoReturn, TypeVar

from collage_evo.runtime.manifest import BEST

T = TypeVar("T")
LEAD_S = 2.0
"""Seconds before the end at which a run is stopped: what started it, and what ends its processes, take as long."""
RESULT_S = 3.0
"""Seconds that a run may be late for its result, and the lines about it. Chosen."""
CHECK_S = 0.5
"""Interval in seconds at which a run is looked at whose end was put off. Chosen."""
_END: ContextVar[float] = ContextVar("end", default=math.inf)
"""The clock's time at which the work of this thread is to end."""
_waited_s = 0.0
_checks: list[Callable[[], None]] = []
"""Of the contexts that are to end, the outermost first."""


class TimeIsOver(BaseException):
    """Raised in the main thread at the deadline. Like ``KeyboardInterrupt`` it is no error of the run."""


class PartIsOver(TimeIsOver):
    """The same before the deadline, as what is left is for something else: of the part that ends at its argument, by
    default the innermost."""


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

    A run in ``directory`` that has no answer yet ends with its first one, at most ``seconds`` later, and has
    ``RESULT_S`` for a result that says how little is known of it. Other threads, and systems without ``SIGALRM``,
    only have the plan that a run makes of its time.
    """
    if seconds is None:
        yield
        return

    end_at = _clock() + max(0.1, seconds - LEAD_S - spent_s)
    unanswered_at = end_at

    def late_s() -> float:
        nonlocal unanswered_at
        if directory is None:
            return 0.0
        if (directory / BEST).exists():
            return unanswered_at + RESULT_S - end_at
        unanswered_at = max(end_at, _clock())
        return seconds

    with _ending(end_at, end, late_s):
        yield


def in_time(make: Callable[[], T], leaving_s: float) -> T | None:
    """The value of ``make``; None if only so many seconds were left before it had one. Inside of it,
    :func:`seconds_left` are those until then. Without a deadline nothing ends it."""
    end_at = _END.get() - leaving_s

    def end() -> NoReturn:
        raise PartIsOver(end_at)

    try:
        with _ending(end_at, end) if math.isfinite(end_at) else contextlib.nullcontext():
            return make()
    except PartIsOver as over:
        if over.args not in ((), (end_at,)):  # but of what this is a part of
            raise
        return None


@contextlib.contextmanager
def _ending(end_at: float, end: Callable[[], NoReturn], late_s: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Context that calls ``end`` once, at ``end_at`` of the clock or so many seconds later as :func:`late_s` returns
    then."""
    token, waits = _END.set(end_at), [True]

    def check() -> None:
        if waits and _clock() >= end_at + late_s():
            waits.clear()
            end()

    try:
        with _alarm(max(0.1, end_at - _clock()), check):
            yield
    finally:
        _END.reset(token)


@contextlib.contextmanager
def _alarm(seconds: float, check: Callable[[], None]) -> Iterator[None]:
    """Context that calls ``check`` after ``seconds``, and again every ``CHECK_S``; those outside of it, too."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def check_all(number: int, frame: object) -> None:
        for one in tuple(_checks):
            one()

    before = signal.signal(signal.SIGALRM, check_all)
    signal.setitimer(signal.ITIMER_REAL, seconds, CHECK_S)
    _checks.append(check)
    try:
        yield
    finally:
        _checks.remove(check)
        if not _checks:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
