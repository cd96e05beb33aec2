"""Interference by other processes: the share of the cores' time that they took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

STAT = Path("/proc/stat")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BUSY = (1, 2, 3, 6, 7, 8)
"""Columns of a core's busy time: user, nice, system, irq, softirq, stolen by the hypervisor."""


class Others:
    """Time that other processes, and other virtual machines, had the cores that this process may use.

    It is the cores' busy time by the system's counters, less the time of all threads of this process. Unlike counts
    of context switches, it does not include threads of this process that take a core from each other. Nor does it
    include a process that takes turns with this one, whose time is ``helper_s``. ``stat``: the counters; ``clock``:
    seconds.
    """

    def __init__(
        self,
        helper_s: Callable[[], float] = lambda: 0.0,
        stat: Path = STAT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._helper_s, self._stat, self._clock = helper_s, stat, clock
        self._names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        self._begin, self._taken = clock(), self._taken_s()

    def share(self) -> float:
        """Share of the cores' time, 0 to 1, that others had so far; the system counts in ticks, of which one a core
        is ignored. 0 where the system has no counters."""
        taken_s = self._taken_s() - self._taken - len(self._names) / TICKS_PER_S
        return max(0.0, taken_s) / (self._clock() - self._begin) / len(self._names)

    def _taken_s(self) -> float:
        try:
            lines = [line.split() for line in self._stat.read_text().splitlines()]
        except OSError:
            return 0.0
        ticks = sum(int(fields[column]) for fields in lines if fields[0] in self._names for column in BUSY)
        return ticks / TICKS_PER_S - time.process_time() - self._helper_s()
