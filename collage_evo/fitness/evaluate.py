"""End-to-end fitness: takes placements, gives each one's measured latency or the reason why it has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collage_evo.fitness.measure.builders import Builders, build_job
from collage_evo.fitness.measure.jobs import Answer, PlacementJob, regions_of
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.fitness.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.runtime.timing import Timing, TimingSettings

RACE = 1.1
"""A placement whose first runs all take this many times the best's latency is timed no further."""
FAR_BEHIND = "far behind"
"""How the reason begins why a placement was not measured that is predicted to be hopeless."""


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
    best_ms: float = math.inf
    """The fastest so far, which all others race against."""

    def evaluate(self, placements: Sequence[Placement]) -> list[Outcome]:
        """Compile what ``placements`` lack, then check and time them, as many at once as there are timing slots."""
        faults = self._faults(placements)
        jobs = [
            placement_job(placement, self.timing, self.give_up_ms, RACE * self.best_ms)
            for placement, fault in zip(placements, faults, strict=True)
            if not fault
        ]
        answers = self.pool.map(jobs)
        outcomes = [Outcome.unfit(fault) if fault else outcome_of(next(answers)) for fault in faults]
        self.best_ms = min([self.best_ms, *(o.latency_ms for o in outcomes if o.latency_ms is not None)])
        return outcomes

    def _faults(self, placements: Sequence[Placement]) -> list[str]:
        """Why each placement is not run: it is hopeless, or one of its regions cannot be compiled; else empty."""
        hopeless = [
            f"{FAR_BEHIND}: predicted {ms:.0f} ms, not measured" if ms > self.predicted_limit else ""
            for ms in map(self.predict, placements)
        ]
        wanted = [p for p, reason in zip(placements, hopeless, strict=True) if not reason]
        failed = self.builders.build(build_job(region) for p in wanted for region in p.regions)
        return [
            reason or next(filter(None, (failed[build_job(region)] for region in p.regions)), "")
            for p, reason in zip(placements, hopeless, strict=True)
        ]


def placement_job(
    placement: Placement, timing: TimingSettings, give_up_ms: float, behind_ms: float = math.inf
) -> PlacementJob:
    """The job that measures ``placement``.

    Raises:
        InputError: its schedule lets regions run at the same time.
    """
    placement.schedule.require_sequential()
    return PlacementJob(regions_of(placement), timing, give_up_ms, behind_ms)


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
