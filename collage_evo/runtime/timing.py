"""Timing: the only timing routine, raw times of a call and summaries, within a bound on total time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from collage_evo.hardware.interference import Others
from collage_evo.statistics import median_interval

WARM_UP_GAIN = 5.0
"""Warm-up never makes a call so many times as fast."""
LONG_S, LONG_RUNS = 0.5, 3
"""A call that takes this long is warm after one, and so many are timed; one that is too slow gets no warm-up: it has
run before, at least for a check."""


@dataclass(frozen=True)
class TimingSettings:
    """Number of runs and duration of timing.

    Timing goes on until both ``min_runs`` and ``min_seconds`` are reached, or :data:`LONG_RUNS` of a call that takes
    long, never past ``max_seconds`` (warm-up included) except to finish the first timed run.
    """

    warmup: int = 3
    min_runs: int = 10
    min_seconds: float = 0.2
    max_seconds: float = 5.0


@dataclass(frozen=True)
class TimedInputs:
    """Inputs on which a whole model is timed: one for each shape, with its weight in the latency."""

    feeds: tuple[Mapping[str, Any], ...]
    weights: tuple[float, ...] = (1.0,)


RACE_RUNS = 3
ATTEMPTS = 3
"""Maximum number of timings while they are contended."""
NEAR_WAIT_S = 3.0
CONTENDED = 0.1
"""Share of the cores' time that others took: under 0.05 without others, 0.25 with one of two cores shared."""
JUDGED_S = 0.1
"""Timing does not stop for slowness before this time: the system's counters of the cores' use are coarser."""


class Clock(Protocol):
    """The clock of an accelerator that runs pieces of a loaded program."""

    @property
    def warm_s(self) -> float:
        """Seconds of warm-up until it runs at its usual pace."""

    @property
    def first_run_s(self) -> float:
        """Seconds that any first run may take."""

    def time_ms(self, flush_bytes: int = 0) -> float:
        """Milliseconds by its own events of a run on the last fed inputs, without copies of inputs and outputs.

        It first writes ``flush_bytes``, so that weights are cold and inputs warm.
        """

    def throttled(self) -> bool:
        """Whether it is slower now than it could be."""


@dataclass(frozen=True)
class Timing:
    """Raw times of single runs, in ms.

    ``others``: share of the cores' time that other processes, or virtual machines, took during the timing. Above
    ``CONTENDED`` the times are unreliable. ``far``: the cores were farther from each other than usual. ``throttled``:
    the accelerator ran slower than it could.
    """

    times_ms: tuple[float, ...]
    others: float = 0.0
    far: bool = False
    throttled: bool = False

    @property
    def contended(self) -> bool:
        return self.far or self.throttled or self.others > CONTENDED

    @property
    def median_ms(self) -> float:
        return float(np.median(self.times_ms))

    @property
    def interval_ms(self) -> tuple[float, float]:
        """95 % bootstrap interval of the median."""
        return median_interval(self.times_ms)

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
    warm_s: float = 0.0,
    others_of: Callable[[], Others] = Others,
) -> Timing:
    """Time ``call``.

    Args:
        call: the timed call. If it returns a float, that is its time in milliseconds, by its own clock.
        settings: warm-up, least effort, bound.
        before_each: runs untimed before every timed run, not before warm-up, to flush caches or restore inputs.
        give_up_ms: timing stops for a call that is still slower than this once warm; warm-up stops early for one that
            is slower by far, or takes long.
        clock: seconds.
        behind_ms: timing stops for a call whose first runs, at least ``RACE_RUNS``, all take longer: it lost the
            race.
        warm_s: least duration of warm-up in seconds, but not more than half of ``max_seconds``.
        others_of: begins to count the cores' time that others take.
    """
    begin = clock()
    others = others_of()
    times: list[float] = []
    warm, timed_ms, least_ms = 0, 0.0, math.inf
    while True:
        if before_each is not None and (times or warm >= settings.warmup):
            before_each()
        start = clock()
        reported_ms = call()
        end = clock()
        spent, elapsed = reported_ms if isinstance(reported_ms, float) else (end - start) * 1e3, end - begin
        if (warm < settings.warmup or elapsed < warm_s) and elapsed < settings.max_seconds / 2:
            warm += 1
            long, far = spent >= LONG_S * 1e3, warm > 1 and spent > WARM_UP_GAIN * give_up_ms
            if long:
                warm = settings.warmup
            if spent <= give_up_ms or not (long or far):
                continue
        times.append(spent)
        timed_ms, least_ms = timed_ms + spent, min(least_ms, spent)
        lost = least_ms > give_up_ms or (len(times) >= RACE_RUNS and least_ms > behind_ms)
        long_enough = least_ms >= LONG_S * 1e3 and len(times) >= LONG_RUNS
        enough = long_enough or (len(times) >= settings.min_runs and timed_ms >= settings.min_seconds * 1e3)
        if (lost and elapsed >= JUDGED_S) or enough or elapsed >= settings.max_seconds:
            return Timing(tuple(times), others.share())


def measure_uncontended(
    time_once: Callable[[], Timing],
    near: Callable[[float], bool] = lambda wait_s: True,
    attempts: int = ATTEMPTS,
    pause_s: float = 0.3,
    timeout_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    throttled: Callable[[], bool] = lambda: False,
) -> Timing:
    """The result of ``time_once``, repeated after a pause while it is contended; the least contended of ``attempts``.

    It does not repeat once ``timeout_s`` have passed, or would have after the pause.

    ``near`` waits up to so many seconds for the cores to be close to each other, and returns whether they are. Where
    they stay far apart, distance is no reason to repeat. ``throttled`` returns, directly after a timing, whether the
    accelerator was.
    """

    def attempt() -> Timing:
        timing = time_once()
        return replace(timing, throttled=throttled(), far=not near(0.0))

    began = clock()
    near(NEAR_WAIT_S)
    best = attempt()
    for _ in range(attempts - 1):
        if not best.contended or clock() - began + pause_s >= timeout_s or (best.far and not near(NEAR_WAIT_S)):
            break
        time.sleep(pause_s)
        best = min(best, attempt(), key=lambda timing: (timing.far, timing.throttled, timing.others))
    return best
