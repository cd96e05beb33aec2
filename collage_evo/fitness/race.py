"""Comparisons that decide: takes artifacts, gives paired times, each in a process of its own, taking turns."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from collage_evo.fitness.jobs import OpenJob, TimeJob
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.runtime.timing import Timing, TimingSettings, bootstrap_interval

ROUNDS_A_LOAD = 5
"""Contestants start anew after so many rounds: where a process's memory lies decides some tenths of a percent."""

REST_S = 0.05
"""Pause before each turn, so that the threads of the one before have stopped spinning."""


@dataclass(frozen=True)
class Race:
    """Raw times in ms by contestant and round; those that could not run, with their reason; what the others took."""

    rounds: Mapping[str, tuple[tuple[float, ...], ...]]
    failed: Mapping[str, str]
    serving: Mapping[str, Serving] = field(default_factory=dict)

    def timing(self, name: str) -> Timing:
        """All runs of a contestant."""
        return Timing(tuple(t for turn in self.rounds[name] for t in turn))

    def ratio(self, rival: str, name: str) -> Ratio:
        """How many times as fast as ``rival`` ``name`` is: the median over rounds of the paired ratio."""
        pairs = zip(self.rounds[rival], self.rounds[name], strict=True)
        ratios = [float(np.median(slow) / np.median(fast)) for slow, fast in pairs]
        low, high = bootstrap_interval(ratios)
        return Ratio(float(np.median(ratios)), low, high, tuple(ratios))


@dataclass(frozen=True)
class Serving:
    """What serving an artifact takes in a process of its own: median time to load it, most memory of any load."""

    load_ms: float
    peak_bytes: int


@dataclass(frozen=True)
class Ratio:
    """Median paired ratio with its 95 % bootstrap interval, and the ratio of every round."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]


@dataclass
class _Contestant:
    path: Path
    timeout_s: float
    sandbox: Sandbox = field(init=False)
    times_ms: list[tuple[float, ...]] = field(default_factory=list)
    loads: list[Serving] = field(default_factory=list)
    failed: str = ""

    def start(self, sandbox: Sandbox, turn: TimingSettings) -> None:
        """A process of its own, checked and warmed up: the first turn is the slowest, whoever has it."""
        self.sandbox = sandbox
        opened = sandbox.call(OpenJob(str(self.path)), self.timeout_s)
        self.failed = opened.reason
        if opened.load_ms is not None and opened.peak_bytes is not None:
            self.loads.append(Serving(opened.load_ms, opened.peak_bytes))
        if not self.failed:
            self._timed(turn)

    @property
    def serving(self) -> Serving:
        load_ms = float(np.median([load.load_ms for load in self.loads]))
        return Serving(load_ms, max(load.peak_bytes for load in self.loads))

    def take_turn(self, turn: TimingSettings) -> None:
        self.times_ms.append(self._timed(turn))

    def _timed(self, turn: TimingSettings) -> tuple[float, ...]:
        time.sleep(REST_S)
        answer = self.sandbox.call(TimeJob(turn), self.timeout_s)
        self.failed = answer.reason
        return answer.times_ms


def race(
    artifacts: Mapping[str, Path],
    pool: MeasuringPool,
    rounds: int,
    turn: TimingSettings,
    on_round: Callable[[int], None] = lambda _: None,
) -> Race:
    """Let ``artifacts`` take turns for ``rounds`` rounds; each load and each round has an order of its own."""
    contestants = {name: _Contestant(path, pool.timeout_s) for name, path in artifacts.items()}
    with pool.quiet() as cores:
        for first in range(0, rounds, ROUNDS_A_LOAD):
            with contextlib.ExitStack() as stack:
                for one in _shuffled(_alive(contestants), first):
                    one.start(stack.enter_context(Sandbox(pool.setting, cores, pool.memory_bytes)), turn)
                for index in range(first, min(first + ROUNDS_A_LOAD, rounds)):
                    for one in _shuffled(_alive(contestants), index):
                        one.take_turn(turn)
                    on_round(index + 1)
    return Race(
        {name: tuple(one.times_ms) for name, one in contestants.items() if not one.failed},
        {name: one.failed for name, one in contestants.items() if one.failed},
        {name: one.serving for name, one in contestants.items() if one.loads and not one.failed},
    )


def _alive(contestants: Mapping[str, _Contestant]) -> list[_Contestant]:
    return [one for one in contestants.values() if not one.failed]


def _shuffled(some: Sequence[_Contestant], seed: int) -> list[_Contestant]:
    return random.Random(seed).sample(some, len(some))
