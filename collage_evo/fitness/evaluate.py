"""End-to-end fitness: takes placements, gives each one's measured latency or the reason why it has none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile

from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.measure.answers import Measured, Reply
from collage_evo.fitness.measure.builders import Builders, build_job
from collage_evo.fitness.measure.jobs import PlacementJob, regions_of
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.fitness.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.runtime.timing import Timing, TimingSettings

RACE = 1.1
"""A placement whose first runs all take this many times the best's latency is timed no further."""
BATCH = 8
"""Placements that are compiled, then timed, together."""


@dataclass
class MeasuredEvaluator:
    """The evaluator of the real target.

    A placement slower than ``give_up_ms`` is not timed to the end. One for which ``predict`` gives more than
    ``predicted_limit`` is not even built: compare predictions with predictions, not with measured times.
    """

    pool: MeasuringPool
    builders: Builders
    timing: TimingSettings
    give_up_ms: float
    predict: Callable[[Placement], float]
    predicted_limit: float
    budget: float = math.inf
    """The largest error of an answer."""
    best_ms: float = math.inf
    """The fastest so far that may be the answer, which all others race against."""
    until: float = math.inf
    """On ``clock``: what would begin later is not measured."""
    clock: Callable[[], float] = time.monotonic

    def evaluate(self, placements: Sequence[Placement]) -> list[Outcome]:
        """Compile what ``placements`` lack, then check and time them, as many at once as there are timing slots.

        In the order of ``placements``, and fewer where the time is over; the first is always measured.
        """
        outcomes: list[Outcome] = []
        while len(outcomes) < len(placements) and not (outcomes and self._over()):
            some = placements[len(outcomes) : len(outcomes) + BATCH]
            outcomes += (found := self._evaluated(some, first=not outcomes))
            if len(found) < len(some):
                break
        return outcomes

    def _over(self) -> bool:
        return self.clock() >= self.until

    def _evaluated(self, placements: Sequence[Placement], first: bool) -> list[Outcome]:
        """Those of one batch, up to the first that there was no time for."""
        failures = self._failures(placements)
        jobs = [
            placement_job(placement, self.timing, self.give_up_ms, RACE * self.best_ms)
            for placement, failure in zip(placements, failures, strict=True)
            if failure is None
        ]
        ahead = 1 if first else 0
        replies = chain(self.pool.map(jobs[:ahead]), self.pool.map(jobs[ahead:], self._over))
        outcomes = [_outcome(next(replies)) if failure is None else Outcome.unfit(failure) for failure in failures]
        outcomes = list(takewhile(lambda o: o.failure is None or o.failure.fault is not Fault.CLOSED, outcomes))
        rivals = (o for o in outcomes if o.error is None or o.error <= self.budget)
        self.best_ms = min([self.best_ms, *(o.latency_ms for o in rivals if o.latency_ms is not None)])
        return outcomes

    def _hopeless(self, placement: Placement) -> Failure | None:
        """Why ``placement`` is not worth building. A whole model in one piece always is: no sum of parts knows it."""
        ms = self.predict(placement)
        if ms <= self.predicted_limit or len(placement.regions) == 1:
            return None
        return Failure(Fault.FAR_BEHIND, f"predicted {ms:.0f} ms, not measured")

    def _failures(self, placements: Sequence[Placement]) -> list[Failure | None]:
        """Why each placement is not run: it is hopeless, or one of its regions cannot be compiled; else None."""
        hopeless = [self._hopeless(placement) for placement in placements]
        wanted = [p for p, failure in zip(placements, hopeless, strict=True) if failure is None]
        failed = self.builders.build(build_job(region) for p in wanted for region in p.regions)
        return [
            failure or next(filter(None, (failed.get(build_job(region)) for region in p.regions)), None)
            for p, failure in zip(placements, hopeless, strict=True)
        ]


def _outcome(reply: Reply[Measured]) -> Outcome:
    return outcome_of(reply.answer, reply.worker)


def placement_job(
    placement: Placement, timing: TimingSettings, give_up_ms: float, behind_ms: float = math.inf
) -> PlacementJob:
    """The job that measures ``placement``."""
    return PlacementJob(regions_of(placement), timing, give_up_ms, behind_ms)


def outcome_of(answer: Measured | Failure, worker: str = "") -> Outcome:
    """Summary of what ``worker`` answered."""
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
        disturbed=answer.disturbed,
    )
