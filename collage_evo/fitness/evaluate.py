"""End-to-end fitness: takes placements, gives each one's measured latency or the reason why it has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collage_evo.fitness.jobs import Answer, PlacementJob
from collage_evo.fitness.outcome import Outcome
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.patterns.match import Placement
from collage_evo.runtime.timing import Timing, TimingSettings

RACE = 1.1
"""A placement whose first runs all take this many times the best's latency is timed no further."""


@dataclass
class MeasuredEvaluator:
    """The evaluator of the real target.

    A placement slower than ``give_up_ms`` is not timed to the end. One for which ``predict`` gives more than
    ``predicted_limit`` is not even built: compare predictions with predictions, not with measured times.
    """

    pool: MeasuringPool
    timing: TimingSettings
    give_up_ms: float
    predict: Callable[[Placement], float]
    predicted_limit: float
    best_ms: float = math.inf
    """The fastest so far, which all others race against."""

    def evaluate(self, placements: Sequence[Placement]) -> list[Outcome]:
        """Build and time ``placements``, as many at once as there are timing slots."""
        predicted = [self.predict(p) for p in placements]
        jobs = [
            placement_job(placement, self.timing, self.give_up_ms, RACE * self.best_ms)
            for placement, ms in zip(placements, predicted, strict=True)
            if ms <= self.predicted_limit
        ]
        answers = self.pool.map(jobs)
        outcomes = [
            outcome_of(next(answers))
            if ms <= self.predicted_limit
            else Outcome.unfit(f"far behind: predicted {ms:.0f} ms, not measured")
            for ms in predicted
        ]
        self.best_ms = min([self.best_ms, *(o.latency_ms for o in outcomes if o.latency_ms is not None)])
        return outcomes


def placement_job(
    placement: Placement, timing: TimingSettings, give_up_ms: float, behind_ms: float = math.inf
) -> PlacementJob:
    """The job that measures ``placement``."""
    regions = tuple((f"{r.nodes:x}", r.backend, r.variant) for r in placement.regions)
    return PlacementJob(regions, timing, give_up_ms, behind_ms)


def outcome_of(answer: Answer) -> Outcome:
    """Summary of an answer."""
    if answer.reason:
        return Outcome.unfit(answer.reason, answer.relative_error, answer.worker)
    timing = Timing(answer.times_ms)
    return Outcome(
        timing.median_ms,
        timing.p10_ms,
        timing.p90_ms,
        timing.n,
        error=answer.relative_error,
        worker=answer.worker,
    )
