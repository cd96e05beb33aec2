"""Comparisons that decide: takes artifacts, gives paired times, each in a process of its own, taking turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from collage_evo.fitness.failure import Failure
from collage_evo.fitness.final.sequential import LEVEL, mean_interval
from collage_evo.fitness.measure.jobs import OpenJob, TimeJob
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.fitness.measure.sandbox import Sandbox
from collage_evo.runtime.timing import Timing, TimingSettings

TURNS = 3
"""Turns of a round: their median does not mind that something else ran during one of them."""

ATTEMPTS = 2
"""A turn that others disturbed is taken again, once: where they stay, waiting for them would take too long."""

REST_S = 0.05
"""Pause before each turn, so that the threads of the one before have stopped spinning."""

Turn = tuple[float, ...]
"""Raw times of the runs of one turn, in ms."""


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios of all rounds, and a 95 % interval: of their mean, on a logarithmic scale."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, logs: Sequence[float], significance: float = 1.0 - LEVEL) -> Ratio:
        """From the logarithms of the rounds' ratios; ``significance`` of the last look at them."""
        low, high = mean_interval(logs, significance)
        return cls(float(np.exp(np.median(logs))), float(np.exp(low)), float(np.exp(high)), tuple(np.exp(logs)))


@dataclass(frozen=True)
class Serving:
    """What serving an artifact takes in a process of its own: median time to load it, most memory of any load.

    ``notes``: what of it does not run as well as it might, and why.
    """

    load_ms: float
    peak_bytes: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, loads: Sequence[Serving]) -> Serving:
        """Over several loads."""
        notes = dict.fromkeys(note for load in loads for note in load.notes)
        load_ms = float(np.median([load.load_ms for load in loads]))
        return cls(load_ms, max(load.peak_bytes for load in loads), tuple(notes))


@dataclass(frozen=True)
class Race:
    """Raw times by contestant, round and turn; those that could not run, and why; what the others took.

    Who left a race early has fewer rounds, the first ones.
    """

    rounds: Mapping[str, tuple[tuple[Turn, ...], ...]]
    failed: Mapping[str, Failure]
    serving: Mapping[str, Serving] = field(default_factory=dict)

    def timing(self, name: str) -> Timing:
        """All runs of a contestant."""
        return Timing(tuple(ms for turns in self.rounds[name] for turn in turns for ms in turn))

    def logs(self, rival: str, name: str) -> list[float]:
        """Logarithm of how many times as fast as ``rival`` ``name`` is: for each round the median over its turns."""
        both = zip(self.rounds[rival], self.rounds[name], strict=False)
        return [float(np.median([_log_ratio(*turns) for turns in zip(*one, strict=True)])) for one in both]

    def ratio(self, rival: str, name: str) -> Ratio:
        """How many times as fast as ``rival`` ``name`` is, in a race whose number of rounds was set beforehand."""
        return Ratio.of(self.logs(rival, name))


def _log_ratio(slow: Turn, fast: Turn) -> float:
    return float(np.log(np.median(slow) / np.median(fast)))


class Track:
    """Contestants who run one at a time on the same cores. Use as a context manager: leaving it ends them all.

    ``failed`` says why one who failed is out. Who starts first and who runs first changes, since it matters.
    """

    def __init__(
        self,
        artifacts: Mapping[str, Path],
        pool: MeasuringPool,
        cores: tuple[int, ...],
        turn: TimingSettings,
        order: random.Random,
    ) -> None:
        self._artifacts, self._pool, self._cores, self._turn = artifacts, pool, cores, turn
        self._order = order
        self._ready: dict[str, Sandbox] = {}
        self.failed: dict[str, Failure] = {}
        self.loads: dict[str, Serving] = {}

    @property
    def ready(self) -> list[str]:
        """Who takes turns."""
        return list(self._ready)

    def start(self, names: Iterable[str]) -> None:
        """Each in a process of its own, checked and warmed up: the first turn is the slowest, whoever has it."""
        begun = {name: Sandbox(self._pool.setting, self._cores, self._pool.memory_bytes) for name in names}
        self._ready |= begun
        for sandbox in begun.values():
            sandbox.start()  # they read their modules side by side
        for name in self._shuffled(begun):
            opened = begun[name].call(OpenJob(str(self._artifacts[name])), self._pool.timeout_s)
            if isinstance(opened, Failure):
                self._fail(name, opened)
                continue
            self.loads[name] = Serving(opened.load_ms, opened.peak_bytes, opened.notes)
            self._take_turn(name, attempts=1)

    def turn(self) -> dict[str, Turn]:
        """A turn of everybody who is ready."""
        return {name: times for name in self._shuffled(self._ready) if (times := self._take_turn(name))}

    def stop(self, names: Iterable[str]) -> None:
        """``names`` leave the race."""
        for name in names:
            self._ready.pop(name).close()

    def _take_turn(self, name: str, attempts: int = ATTEMPTS) -> Turn:
        time.sleep(REST_S)
        answer = self._ready[name].call(TimeJob(self._turn, attempts), self._pool.timeout_s)
        if isinstance(answer, Failure):
            self._fail(name, answer)
            return ()
        return answer.times_ms

    def _fail(self, name: str, failure: Failure) -> None:
        self.failed[name] = failure
        self.stop([name])

    def _shuffled(self, names: Collection[str]) -> list[str]:
        return self._order.sample(list(names), len(names))

    def __enter__(self) -> Track:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(list(self._ready))


def race(
    artifacts: Mapping[str, Path],
    pool: MeasuringPool,
    rounds: int,
    turn: TimingSettings,
    on_round: Callable[[int], None] = lambda _: None,
    still: Callable[[Race], Collection[str]] | None = None,
) -> Race:
    """Let ``artifacts`` take turns for at most ``rounds`` rounds.

    Each round starts everybody anew: where a process's memory lies decides some tenths of a percent for as long as
    it lives, so that rounds within one process would not be independent of each other.

    Args:
        artifacts: by contestant.
        pool: whose setting and first cores are used.
        rounds: the most rounds.
        turn: how long a turn is.
        on_round: told the number of rounds after each.
        still: told the race so far after each round, says who goes on; with nobody left the race is over.
    """
    times: dict[str, list[tuple[Turn, ...]]] = {name: [] for name in artifacts}
    failed: dict[str, Failure] = {}
    names: Collection[str] = list(artifacts)
    loads: dict[str, list[Serving]] = {name: [] for name in artifacts}
    so_far = Race({}, {})
    with pool.undisturbed() as cores:
        for index in range(rounds):
            with Track(artifacts, pool, cores, turn, random.Random(index)) as track:
                track.start(names)
                turns = [track.turn() for _ in range(TURNS)]
                failed |= track.failed
            names = [name for name in names if name not in failed]
            for name in names:
                times[name].append(tuple(one[name] for one in turns))
                loads[name] += [track.loads[name]] if name in track.loads else []
            so_far = Race(
                {name: tuple(times[name]) for name in artifacts if name not in failed},
                dict(failed),
                {name: Serving.of(some) for name, some in loads.items() if some and name not in failed},
            )
            on_round(index + 1)
            if still is not None:
                names = still(so_far)
            if not names:
                break
    return so_far
