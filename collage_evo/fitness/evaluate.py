"""End-to-end fitness: takes placements, gives each one's measured latency or the reason why it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.fitness.jobs import Answer, PlacementJob
from collage_evo.fitness.outcome import Outcome
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.timing import Timing, TimingSettings
from collage_evo.patterns.match import Placement


@dataclass(frozen=True)
class MeasuredEvaluator:
    """The evaluator of the real target."""

    pool: MeasuringPool
    timing: TimingSettings
    give_up_ms: float

    def evaluate(self, placements: Sequence[Placement]) -> list[Outcome]:
        """Build and time ``placements``, as many at once as there are timing slots."""
        jobs = [placement_job(p, self.timing, self.give_up_ms) for p in placements]
        return [outcome_of(answer) for answer in self.pool.map(jobs)]


def placement_job(placement: Placement, timing: TimingSettings, give_up_ms: float) -> PlacementJob:
    """The job that measures ``placement``."""
    regions = tuple((f"{r.nodes:x}", r.backend, r.variant) for r in placement.regions)
    return PlacementJob(regions, timing, give_up_ms)


def outcome_of(answer: Answer) -> Outcome:
    """Summary of an answer."""
    if answer.reason:
        return Outcome.unfit(answer.reason, answer.relative_error)
    timing = Timing(answer.times_ms)
    return Outcome(timing.median_ms, timing.p10_ms, timing.p90_ms, timing.n, error=answer.relative_error)
