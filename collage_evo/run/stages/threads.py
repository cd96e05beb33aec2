"""Threads stage: how many of the allowed threads pay; a short run ends before the other threads have done their
share.

Single libraries run on all threads, on half of them and so on, as long as fewer are about as fast. It is decided once
in a run's life, before the search, whose costs hold for that number of threads.
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
from collage_evo.config import Config
from collage_evo.files import Stored
from collage_evo.policy import Policy
from collage_evo.report.stage import Stage
from collage_evo.report.words import format_ms
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.store import Store


@dataclass(frozen=True)
class OnThreads:
    """Number of threads of a run, decided by its baselines.

    Attributes:
        used: that number, out of those that the configuration allows.
        best_ms: numbers of threads that were tried, and the latency of the fastest single library on them.
    """

    used: int
    best_ms: tuple[tuple[int, float], ...]

    @property
    def reason(self) -> str:
        """One line that explains why not all allowed threads are used; empty if they are."""
        times = [f"{format_ms(ms)} ms on {threads}" for threads, ms in self.best_ms]
        if self.used == self.allowed:
            return ""
        return f"Of {self.allowed} threads {self.used} are used: the best baseline takes {', '.join(times)}"

    @property
    def allowed(self) -> int:
        """The number that the configuration sets."""
        return self.best_ms[0][0]


THREADS = Stored("work/threads.json", OnThreads)


def settled(config: Config, directory: Path | None) -> Config:
    """``config`` with the number of threads that paid in the run in ``directory``, if that is decided."""
    decided = Store(directory).get(THREADS) if directory is not None else None
    return config if decided is None else config.replacing("target", threads=decided.used)


def threads_that_pay(run: RunContext, backends: Backends, on_all: Baselines) -> OnThreads:
    """Decide the number of threads of the run; ``on_all`` are the baselines on all that it may use."""
    allowed, best_ms, policy = run.config.target.threads, best_ms_of(run, on_all), run.config.policy
    of_all = OnThreads(allowed, ((allowed, best_ms),))
    if best_ms > policy.threads_short_ms:
        return of_all
    with run.stage(Stage.THREADS):
        return fewest(of_all, partial(measured_ms, run, backends), policy)


def fewest(of_all: OnThreads, measure: Callable[[int], float], policy: Policy) -> OnThreads:
    """The fewest threads that are about as fast as any, given the latency on all of them in ``of_all``.

    ``measure``: the latency of the fastest single library on a number of threads, ms.
    """
    threads, best_ms = of_all.allowed, dict(of_all.best_ms)

    def used() -> int:
        return min(number for number, ms in best_ms.items() if ms <= policy.threads_pay * min(best_ms.values()))

    while threads > 1 and used() == threads:
        threads //= 2
        best_ms[threads] = measure(threads)
    # The full number of threads is measured once more before fewer are used: the machine may have been busy.
    if used() < of_all.allowed:
        best_ms[of_all.allowed] = min(best_ms[of_all.allowed], measure(of_all.allowed))
    return OnThreads(used(), tuple(best_ms.items()))


def measured_ms(run: RunContext, backends: Sequence[Backend], threads: int) -> float:
    """Latency of the fastest single library on so many threads, of those that do not compile for long."""
    target, largest, directory = run.setting.target, run.limits.measured, run.work / "threads" / str(threads)
    quick = [b for b in backends if any(b.runs_any_model(v) for v in whole_variants(b, target, largest))]
    machine, timing = run.on_threads(threads).machine, run.config.fitness.timing.settings()
    measured = baselines.measure_baselines(quick, directory, machine, timing, lambda measured: None, seconds=0.0)
    return best_ms_of(run, measured)


def best_ms_of(run: RunContext, measured: Sequence[Baseline]) -> float:
    """Latency of the fastest within the budget; infinite if it was contended, or ran on distant cores, when it does
    not show how well threads scale."""
    ran = [b.outcome for b in measured if b.keeps(run.limits.budget)]
    best = min(ran, key=lambda outcome: outcome.latency_ms or math.inf, default=None)
    return math.inf if best is None or best.contended or best.latency_ms is None else best.latency_ms
