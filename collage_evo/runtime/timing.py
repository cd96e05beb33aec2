"""The one timing routine: takes a call, gives raw times and summaries, within a bound on total time."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

FAR = 5.0
"""No warm-up makes a call this many times as fast."""


@dataclass(frozen=True)
class TimingSettings:
    """How often and how long to time.

    Timing goes on until both ``min_runs`` and ``min_seconds`` are reached, never past ``max_seconds``
    (warm-up included) except to finish the first timed run.
    """

    warmup: int = 3
    min_runs: int = 10
    min_seconds: float = 0.2
    max_seconds: float = 5.0


RACE_RUNS = 3
NEAR_WAIT_S = 3.0
DISTURBED = 40.0
"""Involuntary context switches a second on each core: a process alone has a few, one that shares over 100."""


@dataclass(frozen=True)
class Timing:
    """Raw times of single runs, in ms.

    ``preemptions_per_s``: how often a second the system took each core away during those runs, between them not
    counted. Above ``DISTURBED`` somebody else was at work on the same cores, and the times say little. ``far``:
    the cores were farther from each other than usual.
    """

    times_ms: tuple[float, ...]
    preemptions_per_s: float = 0.0
    far: bool = False

    @property
    def disturbed(self) -> bool:
        return self.far or self.preemptions_per_s > DISTURBED

    @property
    def median_ms(self) -> float:
        return float(np.median(self.times_ms))

    @property
    def interval_ms(self) -> tuple[float, float]:
        """95 % bootstrap interval of the median."""
        return bootstrap_interval(self.times_ms)

    @property
    def p10_ms(self) -> float:
        return float(np.percentile(self.times_ms, 10))

    @property
    def p90_ms(self) -> float:
        return float(np.percentile(self.times_ms, 90))

    @property
    def n(self) -> int:
        return len(self.times_ms)


def measure(
    call: Callable[[], object],
    settings: TimingSettings,
    before_each: Callable[[], object] | None = None,
    give_up_ms: float = float("inf"),
    clock: Callable[[], float] = time.perf_counter,
    behind_ms: float = float("inf"),
) -> Timing:
    """Time ``call``.

    Args:
        call: what is timed.
        settings: warm-up, least effort, bound.
        before_each: run untimed before every timed run, to flush caches or restore inputs.
        give_up_ms: a call still slower than this once it is warm is timed only once; one that is slower by
            far is not warmed up to the end.
        clock: seconds.
        behind_ms: a call whose first ``RACE_RUNS`` runs all take longer is timed no further: it lost the race.
    """
    begin = clock()
    times: list[float] = []
    warm = preempted = 0
    while True:
        if before_each is not None:
            before_each()
        preempted_before = _preemptions()
        start = clock()
        call()
        end = clock()
        spent, elapsed = (end - start) * 1e3, end - begin
        if warm < settings.warmup and elapsed < settings.max_seconds / 2:
            warm += 1
            if warm == 1 or spent <= FAR * give_up_ms:
                continue
        times.append(spent)
        preempted += _preemptions() - preempted_before
        lost = len(times) == RACE_RUNS and min(times) > behind_ms
        enough = len(times) >= settings.min_runs and sum(times) >= settings.min_seconds * 1e3
        if lost or enough or min(times) > give_up_ms or elapsed >= settings.max_seconds:
            return Timing(tuple(times), _preemption_rate(preempted, sum(times) / 1e3))


def measure_undisturbed(
    call: Callable[[], object],
    settings: TimingSettings,
    before_each: Callable[[], object] | None = None,
    give_up_ms: float = float("inf"),
    near: Callable[[float], bool] = lambda wait_s: True,
    attempts: int = 3,
    pause_s: float = 0.3,
    behind_ms: float = float("inf"),
) -> Timing:
    """Time ``call``, again after a pause while others disturb it; of ``attempts`` the least disturbed counts.

    ``near`` waits up to so many seconds for the cores to be near each other, and tells whether they are. Where
    waiting is in vain, nothing is timed again for their distance.
    """

    def attempt() -> Timing:
        timing = measure(call, settings, before_each, give_up_ms, behind_ms=behind_ms)
        return replace(timing, far=not near(0.0))

    near(NEAR_WAIT_S)
    best = attempt()
    for _ in range(attempts - 1):
        if not best.disturbed or (best.far and not near(NEAR_WAIT_S)):
            break
        time.sleep(pause_s)
        best = min(best, attempt(), key=lambda timing: (timing.far, timing.preemptions_per_s))
    return best


def _preemptions() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _preemption_rate(preemptions: int, seconds: float) -> float:
    """A second and core. One or two happen to everybody, and would look like many within a few milliseconds."""
    return max(0, preemptions - 2) / len(os.sched_getaffinity(0)) / max(seconds, 1e-9)


def bootstrap_interval(
    values: Sequence[float], seed: int = 0, resamples: int = 2000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the median (Efron 1979)."""
    rng = np.random.default_rng(seed)
    data = np.asarray(values, float)
    medians = np.median(data[rng.integers(0, len(data), (resamples, len(data)))], axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
