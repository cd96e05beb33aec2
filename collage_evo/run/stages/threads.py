"""How many of the threads that the answer may use pay: a short run is over before others have done their share.

Single libraries run on all threads, on half of them and so on, as long as fewer are about as fast. It is decided once
in a run's life, before the search, whose costs are of that many threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from collage_evo.answer import baselines
from collage_evo.answer.baselines import Baseline
from collage_evo.backends.base import Backend
from collage_evo.backends.select import whole_variants
from collage_evo.config import Config, changed
from collage_evo.policy import Policy
from collage_evo.report.words import format_ms
from collage_evo.run.context import RunContext
from collage_evo.run.store import Store

THREADS = "threads"


@dataclass(frozen=True)
class OnThreads:
    """How many threads a run uses, decided by its baselines.

    Attributes:
        used: that many, of those that the configuration allows.
        best_ms: numbers of threads that were tried, and what the fastest single library took on them.
    """

    used: int
    best_ms: tuple[tuple[int, float], ...]

    @property
    def reason(self) -> str:
        """Why not all that are allowed, in one line; empty where it is all."""
        times = [f"{format_ms(ms)} ms on {threads}" for threads, ms in self.best_ms]
        if self.used == self.allowed:
            return ""
        return f"Of {self.allowed} threads {self.used} are used: the best single library takes {', '.join(times)}"

    @property
    def allowed(self) -> int:
        """As many as the configuration says."""
        return self.best_ms[0][0]


def settled(config: Config, directory: Path | None) -> Config:
    """``config`` with as many threads as the run in ``directory`` has found to pay, if it has."""
    found = Store(directory / "work").get(THREADS, OnThreads) if directory is not None else None
    return config if found is None else changed(config, {"target.threads": found.used}, THREADS)


def threads_that_pay(run: RunContext, backends: Sequence[Backend], found: Sequence[Baseline]) -> OnThreads:
    """How many threads the run is to use, where ``found`` are the baselines on all that it may."""

    def decide() -> OnThreads:
        allowed, best_ms, policy = run.config.target.threads, _best_ms(run, found), run.config.policy
        of_all = OnThreads(allowed, ((allowed, best_ms),))
        if best_ms > policy.threads_short_ms:
            return of_all
        with run.stage("fewer threads"):
            return fewest(of_all, partial(_measured_ms, run, backends), policy)

    decided = run.store.once(THREADS, OnThreads, decide)
    if decided.reason:
        run.reporter.log(decided.reason)
    return decided


def fewest(of_all: OnThreads, measure: Callable[[int], float], policy: Policy) -> OnThreads:
    """The fewest threads that are about as fast as any, where all take what ``of_all`` says.

    All are measured once more before fewer are taken: a machine may have been busy.

    ``measure``: what the fastest single library takes on a number of threads, ms.
    """
    threads, taken = of_all.allowed, dict(of_all.best_ms)

    def used() -> int:
        return min(number for number, ms in taken.items() if ms <= policy.threads_pay * min(taken.values()))

    while threads > 1 and used() == threads:
        threads //= 2
        taken[threads] = measure(threads)
    if used() < of_all.allowed:
        taken[of_all.allowed] = min(taken[of_all.allowed], measure(of_all.allowed))
    return OnThreads(used(), tuple(taken.items()))


def _measured_ms(run: RunContext, backends: Sequence[Backend], threads: int) -> float:
    """What the fastest single library takes on so many threads, of those that do not compile for long."""
    device, largest, directory = run.setting.target.device, run.limits.measured, run.work / THREADS / str(threads)
    quick = [b for b in backends if any(b.runs_any_model(v) for v in whole_variants(b, device, largest))]
    pool, timing = run.on_threads(threads).whole, run.config.fitness.timing.settings()
    return _best_ms(run, baselines.measure_baselines(quick, directory, pool, timing, lambda found: None, seconds=0.0))


def _best_ms(run: RunContext, found: Sequence[Baseline]) -> float:
    """What the fastest takes that keeps the budget; infinite where others disturbed it, as cores that are far apart
    do: it says little then of how threads get on."""
    ran = [b.outcome for b in found if b.keeps(run.limits.budget)]
    best = min(ran, key=lambda outcome: outcome.latency_ms or math.inf, default=None)
    return math.inf if best is None or best.contended or best.latency_ms is None else best.latency_ms
