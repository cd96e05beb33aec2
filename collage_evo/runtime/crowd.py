"""The full machine: takes a way to load one model, lets several sessions of it run at once, gives ms for each run."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import JUDGED_S, LONG_S, RACE_RUNS, Timing, TimingSettings
from collage_evo.target.interference import Others

PORTIONS = 16
"""Parts that a measured span is given in, so that its spread is seen and a disturbance weighs little."""


class Tally:
    """Ends of the runs of ``sessions`` that are at work at once, and whether they go on. For one thread at a time.

    What it gives is the machine's time for a run, in ms: a span in which all sessions are at work, over the runs that
    they ended in it. A run is a run, whatever the size of the batch in it. The span begins once everybody is warm and
    ends with the end of a run, before anybody stops: a run that was half done when it began counts, and one that is
    half done when it ends does not.

    Args:
        sessions: how many.
        settings: ``warmup`` and ``min_runs`` hold for each session; everybody warms up with one run at least.
        give_up_ms: who takes the machine longer for a run is timed no further, nor warmed up for long.
        behind_ms: the same once everybody has made ``RACE_RUNS`` runs: it lost the race.
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
        self._span: list[float] = []  # when it began, then the end of each run in it
        self._began = clock()
        self.over = False

    def ended(self, session: int) -> bool:
        """Take down that a run of ``session`` has just ended; whether it should begin another one."""
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
        """Nobody begins another run."""
        self.over = True

    def _warm(self, now: float) -> bool:
        least, elapsed = min(self._warming), now - self._began
        most = sum(self._warming) + len(self._warming)  # counting those that everybody is at
        slow = elapsed >= LONG_S and elapsed * 1e3 / most > self._give_up_ms
        return least > 0 and (least >= self._settings.warmup or slow or elapsed >= self._settings.max_seconds / 2)

    def _enough(self, now: float) -> bool:
        least, spent, elapsed = min(self._timed), now - self._span[0], now - self._began
        if not least:
            return False
        whole = sum(self._timed) // len(self._timed) * len(self._timed)  # else it would look slow between two rounds
        machine_ms = (self._span[whole] - self._span[0]) * 1e3 / whole
        lost = machine_ms > self._give_up_ms or (least >= RACE_RUNS and machine_ms > self._behind_ms)
        enough = least >= self._settings.min_runs and spent >= self._settings.min_seconds
        return (lost and elapsed >= JUDGED_S) or enough or elapsed >= self._settings.max_seconds

    @property
    def times_ms(self) -> tuple[float, ...]:
        """The machine's time for a run in each part of the span.

        Each part has a multiple of as many runs as there are sessions: those of one speed end as many each in it.
        """
        sessions = len(self._timed)
        rounds = sum(self._timed) // sessions
        parts = max(1, min(rounds, max(PORTIONS, self._settings.min_runs)))
        cuts = [part * rounds // parts * sessions for part in range(parts + 1)]
        return tuple((self._span[end] - self._span[begin]) * 1e3 / (end - begin) for begin, end in pairwise(cuts))


class Crowd:
    """Sessions of one model in one process, each called from a thread of its own that stays on cores of its own.

    They are loaded one after the other, each by its thread before this is put on its cores: OpenVINO looks once in a
    process which cores it may use, and where it pins its threads it sets its caller free afterwards. Every session
    reads its own inputs and writes its own outputs.

    Args:
        load: gives another session of the model each time.
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
        """All of them; while nothing is measured any thread may read their outputs."""
        return tuple(self._sessions)

    def feed(self, feeds: Mapping[str, Any]) -> None:
        """Give everybody the same inputs, by a first run: some libraries start a pool for each thread that calls."""
        for thread, session in zip(self._threads, self._sessions, strict=True):
            thread.submit(session.run, None, feeds).result()

    def measure(
        self, settings: TimingSettings, give_up_ms: float = math.inf, behind_ms: float = math.inf
    ) -> Timing:
        """The machine's time for a run, in ms, while all sessions run what they were fed: see :class:`Tally`.

        Raises:
            Exception: what a session raised, once all have stopped.
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

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
