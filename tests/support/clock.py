"""A clock for the processes of a test: it shows what pieces say that they take, whatever else the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

TICK_S = 1e-3
"""By which the clock moves each time somebody looks: what waits for it to pass comes to an end."""


class SaidClock:
    """Stands in for ``time.perf_counter``."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += TICK_S
        return self._now

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


def spend(seconds: float) -> None:
    """Let time pass on the clock of this process, one of those that :func:`install_clock` is for."""
    clock: Callable[[], float] = time.perf_counter
    assert isinstance(clock, SaidClock), "start this process with the environment that install_clock made"
    clock.spend(seconds)


def install_clock(directory: Path) -> None:
    """Give processes that have ``directory`` first in PYTHONPATH, and the root of the tests, such a clock each."""
    # Before anything is imported: functions keep the clock that they find when they are defined.
    lines = ("import time", "from tests.support.clock import SaidClock", "time.perf_counter = SaidClock()")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text("\n".join(lines) + "\n")
