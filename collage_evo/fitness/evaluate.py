"""End-to-end evaluation of placements: the measured latency of each, or the reason why it has none."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from collage_evo.fitness.builders import Builders, CompileAhead
from collage_evo.fitness.jobs import ArtifactJob, Measured, PlacementJob, Written, regions_of
from collage_evo.fitness.pool import WorkerPool
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Bounds, Observed, Outcome
from collage_evo.patterns.match import Placement
from collage_evo.runtime.timing import Timing, TimingSettings

MOST_AT_ONCE = 8
"""Placements that are measured in parallel at most; a machine times one at a time."""


@dataclass(frozen=True)
class ReferenceArtifact:
    """The artifact of the reference run, and its latency in ms."""

    artifact: Path
    latency_ms: float


@dataclass(frozen=True)
class TimingRule:
    """How placements are timed.

    Attributes:
        timing: of each placement.
        give_up_ms: timing of a slower one is aborted.
        reference_run: runs beside each placement, where one session runs at a time; else only the clock times it.
        bounds: the largest value of each objective but latency that an answer may have.
        on_all_samples: each is judged on all samples, also one that is slow or errs too much.
    """

    timing: TimingSettings
    give_up_ms: float = math.inf
    reference_run: ReferenceArtifact | None = None
    bounds: Bounds = field(default_factory=dict)
    on_all_samples: bool = False


@dataclass
class MeasuredEvaluator:
    """Evaluator on the real target."""

    pool: WorkerPool
    builders: Builders
    rule: TimingRule
    best_ms: float = math.inf
    """The latency of the fastest placement so far that may be the answer, against which all others race."""
    on_measured: Callable[[Placement, Outcome], None] = lambda placement, outcome: None
    clock: Callable[[], float] = time.monotonic
    _comparing: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome | None]:
        """Check and time ``placements``, compiled a few ahead of the timing.

        The first placement that is compiled is measured first, on as many threads as there are slots: while one
        times, another judges what it timed before. Once all are pulled the method does not wait for those that are
        still being compiled, except for one: they have no outcome, and neither have those that would begin after
        ``until`` on the clock. The time limit applies only once a placement was correct and within the budget.
        """
        outcomes: dict[int, Outcome] = {}
        count = min(len(self.pool.config.slots), MOST_AT_ONCE) if self.pool.workers.local else 1
        threads = ThreadPoolExecutor(count)
        waiting = 1 if self.pool.workers.local else MOST_AT_ONCE
        with CompileAhead(self.builders, placements, waiting, self._turn_to_compile) as compile_ahead:
            try:
                begun = [threads.submit(self._measure_ready, compile_ahead, outcomes, until) for _ in range(count)]
                for thread in as_completed(begun):
                    thread.result()
            finally:
                threads.shutdown(wait=False)  # ending the run ends the worker processes that these threads wait for
        return [outcomes.get(number) for number in range(compile_ahead.taken)]

    def _measure_ready(self, compile_ahead: CompileAhead, outcomes: dict[int, Outcome], until: float) -> None:
        """Measure compiled placements until none is left, or time is over."""
        while ready := compile_ahead.ready(lambda: self.best_ms < math.inf, lambda: self.clock() >= until):
            able = [one for one in ready if one.failure is None]
            outcomes.update({one.number: Outcome.unfit(one.failure) for one in ready if one.failure is not None})
            with self._nothing_made(compile_ahead):
                replies = self.pool.map([self._job(one.placement) for one in able])
                for one, reply in zip(able, replies, strict=True):
                    if not (isinstance(reply.answer, Failure) and reply.answer.fault is Fault.CLOSED):
                        outcomes[one.number] = outcome = outcome_of(reply.answer, reply.worker)
                        self.race_against(outcome)
                        self.on_measured(one.placement, outcome)

    @contextmanager
    def _nothing_made(self, compile_ahead: CompileAhead) -> Iterator[None]:
        """Context in which no placement is chosen if cores lack for it, and none compiled if memory does."""
        config = self.pool.config
        fills_machine = config.setting.target.threads * config.setting.sessions >= len(config.cores)
        with compile_ahead.making if fills_machine else nullcontext(), self._turn_to_compile or nullcontext():
            yield

    @property
    def _turn_to_compile(self) -> threading.Lock | None:
        """If memory lacks for compiling while another placement is measured: the lock that keeps both apart, also
        where the search goes on while the last placement of a generation is still compiled."""
        return self._turn if self.pool.config.setting.in_turns else None

    def _job(self, placement: Placement) -> PlacementJob:
        job = PlacementJob(
            regions_of(placement),
            self.rule.timing,
            self.rule.give_up_ms,
            self.best_ms,
            on_all_samples=self.rule.on_all_samples,
        )
        if (run := self.rule.reference_run) is None:
            return job
        return replace(job, reference_run=str(run.artifact), reference_run_ms=run.latency_ms)

    def write(self, placement: Placement, artifact: Path) -> Future[Written | Failure]:
        """Start writing a placement that was measured as an artifact; a cluster's workers do not."""
        return self.builders.write(ArtifactJob(regions_of(placement), str(artifact), {"key": placement.key}))

    def listen(self, on_measured: Callable[[Placement, Outcome], None]) -> None:
        """Call ``on_measured`` with each placement that is measured from now on, in the thread that measures it."""
        self.on_measured = on_measured

    def race_against(self, outcome: Outcome) -> None:
        """Let all others race against ``outcome`` if it is the fastest that may be the answer."""
        if outcome.latency_ms is not None and outcome.keeps(self.rule.bounds):
            with self._comparing:
                self.best_ms = min(self.best_ms, outcome.latency_ms)


def outcome_of(answer: Measured | Failure, worker: str = "") -> Outcome:
    """Convert the answer of ``worker`` to an outcome."""
    if isinstance(answer, Failure):
        return Outcome.unfit(answer, worker)
    timing = Timing(answer.times_ms)
    return Outcome(
        timing.median_ms,
        timing.p10_ms,
        timing.p90_ms,
        timing.n,
        error=answer.relative_error,
        worker=worker,
        **{shown.name: getattr(answer, shown.name) for shown in fields(Observed)},
    )
