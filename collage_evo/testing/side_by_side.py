"""Checks of calls on several threads of one process at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from collage_evo.testing.finding import raised


def together(runs: Sequence[Callable[[], str]]) -> str:
    """The problem of running ``runs`` at the same time, each on a thread of its own; empty if there is none.

    Each returns its own problem, and may raise.
    """
    start = threading.Barrier(len(runs))

    def problem(run: Callable[[], str]) -> str:
        start.wait()
        try:
            return run()
        except Exception as error:  # foreign code may raise anything: this is what the suite checks
            return raised(error)

    with ThreadPoolExecutor(len(runs)) as pool:
        return next(filter(None, list(pool.map(problem, runs))), "")
