"""Distance between the target's cores right now: the time of a round trip between them."""

from __future__ import annotations

import contextlib
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from collage_evo.files import write_whole
from collage_evo.hardware import core_distance_echo as echo
from collage_evo.hardware.private import machine_directory, open_private

FAR = 1.5
"""Cores that need this many times their shortest trip so far are far apart."""
PAUSE_S = 0.05
WAITING_SHARE = 0.25
"""Share of a process's life that it may wait: where cores are far apart half of the time, waiting does not help."""
TIMEOUT_S = 120.0
"""Cores that stay far apart for longer while a process waits have moved for good: their trip is the new shortest."""


class Echo:
    """Round trips of a cache line to another core, in ns; most of it is the interpreter's own time."""

    def __init__(self) -> None:
        memory = os.memfd_create("collage_evo-echo")
        os.ftruncate(memory, mmap.PAGESIZE)
        self._shared = mmap.mmap(memory, mmap.PAGESIZE)
        command = [sys.executable, "-S", "-E", echo.__file__, str(memory)]
        self.process = subprocess.Popen(command, pass_fds=[memory], stdin=subprocess.PIPE)
        """Ends with its standard input."""
        os.close(memory)

    def round_trip(self, core: int) -> float:
        """The median of some round trips between the caller and ``core``."""
        assert self.process.stdin is not None
        shared, question, answer = self._shared, echo.QUESTION, echo.ANSWER
        times = []
        self.process.stdin.write(core.to_bytes(2))
        self.process.stdin.flush()
        for number in range(1, echo.TRIPS + 1):
            start = time.perf_counter_ns()
            shared[question] = number
            for _ in range(echo.TIMEOUT_S):
                if shared[answer] == number:
                    break
            times.append(time.perf_counter_ns() - start)
        shared[question] = shared[answer] = 0
        return statistics.median(times)


class CoreDistance:
    """Distance between ``cores``: of the first one from the farthest other one, a ``round_trip`` in ns.

    A hypervisor may move the cores of a virtual machine to other chips from one second to the next. That does not
    affect a single thread. Threads that work together then wait for each other several times as long: small parallel
    regions take up to three times as long, large ones a tenth more.
    """

    def __init__(
        self,
        cores: tuple[int, ...],
        round_trip: Callable[[int], float],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cores, self._round_trip = cores, round_trip
        self._clock, self._sleep = clock, sleep
        self._known = machine_directory() / f"distance-{'-'.join(map(str, cores))}"
        self._begin = clock()
        self._waited_s = self._in_vain_s = 0.0

    def near(self, wait_s: float = 0.0) -> bool:
        """Whether the cores are as close to each other as ever before, waiting for that up to ``wait_s`` seconds.

        It waits less where this process has spent more than ``WAITING_SHARE`` of its life waiting.
        """
        begin = self._clock()
        allowed_s = min(wait_s, WAITING_SHARE * (begin - self._begin) - self._waited_s)
        while not (near := self._is_near()) and self._clock() - begin < allowed_s:
            self._sleep(PAUSE_S)
        waited_s = self._clock() - begin if wait_s else 0.0
        self._waited_s += waited_s
        self._in_vain_s = 0.0 if near else self._in_vain_s + waited_s
        return near

    def _is_near(self) -> bool:
        distance = self.measure()
        if self._in_vain_s >= TIMEOUT_S:
            self._learn(distance)
        return distance <= FAR * self._shortest()

    def measure(self) -> float:
        """Round trip between the first core and the farthest other one, in ns."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores[:1])
        try:
            distance = max(self._round_trip(core) for core in self._cores[1:])
        finally:
            os.sched_setaffinity(0, allowed)
        if distance < self._shortest():
            self._learn(distance)
        return distance

    def _learn(self, shortest: float) -> None:
        write_whole(self._known, f"{shortest}")

    def _shortest(self) -> float:
        missing = contextlib.suppress(FileNotFoundError, ValueError)
        with missing, os.fdopen(open_private(self._known, os.O_RDONLY)) as file:
            return float(file.read())
        return float("inf")
