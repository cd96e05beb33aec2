"""Comparisons that decide: takes artifacts, gives paired times, each in a process of its own, taking turns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collage_evo.fitness.jobs import Answer, OpenJob, TimeJob
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.runtime.timing import Timing, TimingSettings, bootstrap_interval

REST_S = 0.05
"""Pause before each turn, so that the threads of the one before have stopped spinning."""


@dataclass(frozen=True)
class Race:
    """Raw times in ms by contestant and round; those that could not run, with their reason."""

    rounds: Mapping[str, tuple[tuple[float, ...], ...]]
    opened: Mapping[str, Answer]
    failed: Mapping[str, str]

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
class Ratio:
    """Median paired ratio with its 95 % bootstrap interval, and the ratio of every round."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]


def race(
    artifacts: Mapping[str, Path],
    pool: MeasuringPool,
    rounds: int,
    turn: TimingSettings,
    on_round: Callable[[int], None] = lambda _: None,
) -> Race:
    """Let ``artifacts`` take turns for ``rounds`` rounds; the first of a round changes every round."""
    times: dict[str, list[tuple[float, ...]]] = {}
    opened: dict[str, Answer] = {}
    failed: dict[str, str] = {}
    with pool.quiet() as cores, contextlib.ExitStack() as stack:
        sandboxes: dict[str, Sandbox] = {}
        for name, path in artifacts.items():
            sandbox = stack.enter_context(Sandbox(pool.setting, cores, pool.memory_bytes))
            opened[name] = sandbox.call(OpenJob(str(path)), pool.timeout_s)
            if opened[name].reason:
                failed[name] = opened[name].reason
            else:
                sandboxes[name] = sandbox
                times[name] = []
        for index in range(rounds):
            for name in _rotated(list(sandboxes), index):
                if name in failed:
                    continue
                time.sleep(REST_S)
                answer = sandboxes[name].call(TimeJob(turn), pool.timeout_s)
                if answer.reason:
                    failed[name] = answer.reason
                else:
                    times[name].append(answer.times_ms)
            on_round(index + 1)
    return Race({n: tuple(t) for n, t in times.items() if n not in failed}, opened, failed)


def _rotated(names: Sequence[str], by: int) -> list[str]:
    shift = by % len(names) if names else 0
    return [*names[shift:], *names[:shift]]
