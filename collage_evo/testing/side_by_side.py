"""Checks of calls on several threads of one process at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


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
