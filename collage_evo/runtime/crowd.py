"""Throughput of the full machine: several sessions of one model at the same time, and ms for each run."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from itertools import pairwise

from collage_evo.hardware.interference import Others
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import JUDGED_S, LONG_S, RACE_RUNS, TimedInputs, Timing, TimingSettings

PORTIONS = 16
"""Parts of a measured span, so that its spread shows and contention in a part weighs little."""


class Tally:
    """Records the ends of the runs of simultaneous ``sessions``, and decides when to stop. For one thread at a time.

    The result is the machine's time for a run, in ms: a span in which all sessions are at work, over the runs that
    they ended in it. A run counts as one, whatever its batch size. The span begins once all sessions are warm and
    ends with the end of a run, before any session stops: a run in progress at its beginning counts, and one in
    progress at its end does not.

    Args:
        sessions: number of sessions.
        settings: ``warmup`` and ``min_runs`` hold for each session; each warms up with at least one run.
        give_up_ms: timing, and long warm-up, stops for a model that takes the machine longer for a run.
        behind_ms: likewise once all sessions have made ``RACE_RUNS`` runs: the model lost the race.
        clock: seconds.
    """

    def __init__(
        self,
        sessions: int,
        settings: TimingSettings,
        give_up_ms: float = math.inf,
        behind_ms: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings, self._give_up_ms, self._behind_ms, self._clock = settings, give_up_ms, behind_ms, clock
        self._warming, self._timed = [0] * sessions, [0] * sessions
        self._span: list[float] = []  # the beginning of the span, then the end of each run in it
        self._began = clock()
        self.over = False

    def ended(self, session: int) -> bool:
        """Record the end of a run of ``session``; returns whether it should begin another one."""
        now = self._clock()
        if self.over:
            return False
        if self._span:
            self._timed[session] += 1
            self._span.append(now)
            self.over = self._enough(now)
        else:
            self._warming[session] += 1
            if self._warm(now):
                self._span.append(now)
        return not self.over

    def stop(self) -> None:
        """Let no session begin another run."""
        self.over = True

    def _warm(self, now: float) -> bool:
        least, elapsed = min(self._warming), now - self._began
        most = sum(self._warming) + len(self._warming)  # with the current runs of all sessions
        slow = elapsed >= LONG_S and elapsed * 1e3 / most > self._give_up_ms
        return least > 0 and (least >= self._settings.warmup or slow or elapsed >= self._settings.max_seconds / 2)

    def _enough(self, now: float) -> bool:
        least, spent, elapsed = min(self._timed), now - self._span[0], now - self._began
        if not least:
            return False
        whole = sum(self._timed) // len(self._timed) * len(self._timed)  # or it seems slow between two rounds
        machine_ms = (self._span[whole] - self._span[0]) * 1e3 / whole
        lost = machine_ms > self._give_up_ms or (least >= RACE_RUNS and machine_ms > self._behind_ms)
        enough = least >= self._settings.min_runs and spent >= self._settings.min_seconds
        return (lost and elapsed >= JUDGED_S) or enough or elapsed >= self._settings.max_seconds

    @property
    def times_ms(self) -> tuple[float, ...]:
        """The machine's time for a run in each part of the span.

        Each part has a multiple of the number of sessions as runs: sessions of one speed end equally many in it.
        """
        sessions = len(self._timed)
        rounds = sum(self._timed) // sessions
        parts = max(1, min(rounds, max(PORTIONS, self._settings.min_runs)))
        cuts = [part * rounds // parts * sessions for part in range(parts + 1)]
        return tuple((self._span[end] - self._span[begin]) * 1e3 / (end - begin) for begin, end in pairwise(cuts))


class Crowd(AbstractContextManager["Crowd"]):
    """Sessions of one model in one process, each called from its own thread on its own cores.

    They are loaded one after the other, each by its thread before that is pinned to its cores: OpenVINO determines
    once in a process which cores it may use, and where it pins its threads it unpins its caller afterwards. Every
    session reads its own inputs and writes its own outputs.

    Args:
        load: returns a new session of the model each time.
        cores: for each session the cores of its thread.
    """

    def __init__(self, load: Callable[[], Session], cores: Sequence[tuple[int, ...]]) -> None:
        self._threads = [ThreadPoolExecutor(1) for _ in cores]
        self._sessions: list[Session] = []
        try:
            for thread in self._threads:
                self._sessions.append(thread.submit(load).result())
            for thread, own in zip(self._threads, cores, strict=True):
                thread.submit(os.sched_setaffinity, 0, own).result()
        except BaseException:
            self.close()
            raise

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All sessions; outside a measurement any thread may read their outputs."""
        return tuple(self._sessions)

    def feed(self, inputs: TimedInputs) -> None:
        """Feed all sessions the same inputs, the first, by a first run: some libraries start a pool for each calling
        thread."""
        for thread, session in zip(self._threads, self._sessions, strict=True):
            thread.submit(session.run, None, inputs.feeds[0]).result()

    def measure(
        self, settings: TimingSettings, give_up_ms: float = math.inf, behind_ms: float = math.inf
    ) -> Timing:
        """The machine's time for a run, in ms, while all sessions run on the fed inputs: see :class:`Tally`.

        Raises:
            Exception: a session's error, once all have stopped.
        """
        others, lock = Others(), threading.Lock()
        tally = Tally(len(self._sessions), settings, give_up_ms, behind_ms)

        def work(index: int) -> None:
            going = not tally.over
            try:
                while going:
                    self._sessions[index].execute()
                    with lock:
                        going = tally.ended(index)
            except BaseException:
                tally.stop()
                raise

        working = [thread.submit(work, index) for index, thread in enumerate(self._threads)]
        wait(working)
        for one in working:
            one.result()
        return Timing(tally.times_ms, others.share())

    def close(self) -> None:
        """Close the sessions and end their threads."""
        for thread, session in zip(self._threads, self._sessions, strict=False):
            thread.submit(session.close).result()
        for thread in self._threads:
            thread.shutdown()
        self._sessions = []

    def __exit__(self, *exception: object) -> None:
        self.close()
