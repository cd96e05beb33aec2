"""What the search is told of a placement: its latency, or the reason why it has none."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from collage_evo.fitness.evaluate import BATCH, RACE, MeasuredEvaluator
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.measure.answers import Measured, Reply
from collage_evo.fitness.measure.builders import build_job
from collage_evo.fitness.measure.jobs import BuildJob, PlacementJob
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.timing import TimingSettings

NO = Failure(Fault.BUILD, "no")

TIMING = TimingSettings(1, 3, 0.001, 5.0)
FAST, SLOW, WHOLE, UNBUILT = (Placement((Region(nodes, "any", "default"),)) for nodes in (1, 2, 4, 8))
HOPELESS = Placement((Region(4, "any", "default"), Region(16, "any", "default")))


class Pool:
    """Everything takes 10 ms for each node of its first region's number; keeps what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[PlacementJob] = []

    def map(
        self, jobs: Sequence[PlacementJob], over: Callable[[], bool] = lambda: False
    ) -> Iterator[Reply[Measured | Failure]]:
        for job in jobs:
            if over():
                yield Reply(Failure(Fault.CLOSED, "no time was left"))
                continue
            self.jobs.append(job)
            nodes = int(job.regions[0][0], 16)
            yield Reply(Measured((10.0 * nodes,) * 3, 1e-6, 1e-6, disturbed=nodes > 1), "here")


class NoBuilders:
    def build(self, jobs: Iterable[BuildJob]) -> dict[BuildJob, Failure]:
        return {job: NO for job in jobs if job == build_job(UNBUILT.regions[0])}


def evaluator(pool: Any) -> MeasuredEvaluator:
    builders: Any = NoBuilders()
    return MeasuredEvaluator(pool, builders, TIMING, 100.0, predicted_ms, 5.0)


def predicted_ms(placement: Placement) -> float:
    return math.inf if placement in (HOPELESS, WHOLE) else 1.0


def test_a_model_in_one_piece_is_measured_whatever_the_sum_of_its_parts_predicts() -> None:
    hopeless, whole = evaluator(Pool()).evaluate([HOPELESS, WHOLE])
    assert (hopeless.reason, whole.latency_ms) == ("far behind: predicted inf ms, not measured", 40.0)


def test_a_latency_is_as_measured_and_the_fastest_so_far_is_what_all_race_against() -> None:
    pool = Pool()
    measured = evaluator(pool)
    slow, fast = measured.evaluate([SLOW, FAST])
    assert (slow.latency_ms, fast.latency_ms) == (20.0, 10.0)
    assert (slow.disturbed, fast.disturbed) == (True, False)
    assert fast.worker == "here"
    measured.evaluate([SLOW])
    assert [job.behind_ms for job in pool.jobs] == [math.inf, math.inf, pytest.approx(RACE * 10.0)]


def test_what_is_hopeless_or_cannot_be_built_is_not_measured_and_says_why() -> None:
    pool = Pool()
    hopeless, measured, unbuilt = evaluator(pool).evaluate([HOPELESS, FAST, UNBUILT])
    assert hopeless.failure is not None
    assert hopeless.failure.fault is Fault.FAR_BEHIND
    assert unbuilt.reason == "build: no"
    assert measured.ok
    assert len(pool.jobs) == 1


def test_placements_that_there_is_no_time_for_have_no_outcome_and_the_first_always_has_one() -> None:
    pool = Pool()
    measured = evaluator(pool)
    measured.clock = lambda: float(len(pool.jobs))
    many = [Placement((Region(nodes, "any", "default"),)) for nodes in range(16, 16 + 3 * BATCH)]
    for until, count in ((0.0, 1), (3.0, 3), (BATCH + 2.0, BATCH + 2), (math.inf, len(many))):
        pool.jobs.clear()
        measured.until = until
        assert len(measured.evaluate(many)) == count
