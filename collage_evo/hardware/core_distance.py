"""Distance between the target's cores right now: the time of a round trip between them."""

from __future__ import annotations

import contextlib
import mmap
import os
import statistics
import subprocess
import sys
import time

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


class CoreDistance:
    """Round trips of a cache line between cores, in ns; most of it is the interpreter's own time.

    A hypervisor may move the cores of a virtual machine to other chips from one second to the next. That does not
    affect a single thread. Threads that work together then wait for each other several times as long: small parallel
    regions take up to three times as long, large ones a tenth more.
    """

    def __init__(self, cores: tuple[int, ...]) -> None:
        self._cores = cores
        self._memory = os.memfd_create("collage_evo-echo")
        os.ftruncate(self._memory, mmap.PAGESIZE)
        self._shared = mmap.mmap(self._memory, mmap.PAGESIZE)
        self._echo = subprocess.Popen(
            [sys.executable, "-S", "-E", echo.__file__, str(self._memory)],
            pass_fds=[self._memory], stdin=subprocess.PIPE,
        )  # fmt: skip
        self._known = machine_directory() / f"distance-{'-'.join(map(str, cores))}"
        self._begin = time.monotonic()
        self._waited_s = self._in_vain_s = 0.0

    def close(self) -> None:
        """End the other process."""
        self._echo.kill()
        self._echo.wait()
        self._shared.close()
        os.close(self._memory)

    def near(self, wait_s: float = 0.0) -> bool:
        """Whether the cores are as close to each other as ever before, waiting for that up to ``wait_s`` seconds.

        It waits less where this process has spent more than ``WAITING_SHARE`` of its life waiting.
        """
        begin = time.monotonic()
        allowed_s = min(wait_s, WAITING_SHARE * (begin - self._begin) - self._waited_s)
        while not (near := self._is_near()) and time.monotonic() - begin < allowed_s:
            time.sleep(PAUSE_S)
        waited_s = time.monotonic() - begin if wait_s else 0.0
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

    def _round_trip(self, core: int) -> float:
        assert self._echo.stdin is not None
        shared, question, answer = self._shared, echo.QUESTION, echo.ANSWER
        times = []
        self._echo.stdin.write(core.to_bytes(2))
        self._echo.stdin.flush()
        for number in range(1, echo.TRIPS + 1):
            start = time.perf_counter_ns()
            shared[question] = number
            for _ in range(echo.TIMEOUT_S):
                if shared[answer] == number:
                    break
            times.append(time.perf_counter_ns() - start)
        shared[question] = shared[answer] = 0
        return statistics.median(times)
