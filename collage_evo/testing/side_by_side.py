"""Checks of calls on several threads of one process at the same time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_LONG_S = 3600.0
"""Switch interval in which Python's lock is never taken from a thread."""


def together(runs: Sequence[Callable[[], str]]) -> str:
    """The problem of running ``runs`` at the same time, each on a thread of its own; empty if there is none.

    Each returns its own problem, and may raise.
    """
    problems = [""] * len(runs)
    start = threading.Barrier(len(runs))

    def do(place: int) -> None:
        start.wait()
        try:
            problems[place] = runs[place]()
        except Exception as error:  # foreign code may raise anything: this is what the suite checks
            problems[place] = " ".join(f"raised {type(error).__name__}: {error}".split())[:300]

    threads = [threading.Thread(target=do, args=(place,)) for place in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(filter(None, problems), "")


def shared_time(
    call: Callable[[], None],
    most_calls: int = 50,
    enough: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The largest share of a call during which another Python thread could run, of ``most_calls`` or until
    ``enough``.

    The other thread reads the time repeatedly. It gets Python's lock only while the call releases it, since meanwhile
    the interpreter itself takes it from no thread.
    """
    best = 0.0
    noted: list[float] = []
    go, over = threading.Semaphore(0), threading.Semaphore(0)
    at_work = stopped = False

    def note() -> None:
        while go.acquire() and not stopped:
            while at_work:
                noted.append(clock())
                time.sleep(0)  # releases the lock, too
            over.release()

    other = threading.Thread(target=note, daemon=True)
    with _lock_held():
        other.start()  # started here: a wait for the lock uses the interval it began with
        try:
            for _ in range(most_calls):
                noted.clear()
                at_work = True
                go.release()
                begin = clock()
                call()
                at_work = False
                end = clock()
                inside = [moment for moment in noted if begin <= moment <= end]
                over.acquire()
                if inside:
                    best = max(best, (inside[-1] - inside[0]) / (end - begin))
                if best >= enough:
                    break
        finally:  # also if the call raises, because this thread would use time and memory for good
            at_work, stopped = False, True
            go.release()
            other.join()
    return best


@contextmanager
def _lock_held() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_LONG_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
