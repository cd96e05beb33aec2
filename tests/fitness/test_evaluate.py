"""What the search is told of a placement: its latency at the machine's usual pace, whoever measured it when."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collage_evo.fitness.builders import build_job
from collage_evo.fitness.evaluate import FAR_BEHIND, RACE, MeasuredEvaluator
from collage_evo.fitness.jobs import Answer, BuildJob, Job, PlacementJob, WholeJob
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import make_setting

TIMING = TimingSettings(1, 3, 0.001, 5.0)
USUAL_MS = 0.5
SLOW, FAST, HOPELESS, UNBUILT = (Placement((Region(nodes, "any", "default"),)) for nodes in (1, 2, 4, 8))


class Pool:
    """The same work twice, once while the machine is slower; keeps what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[PlacementJob] = []

    def map(self, jobs: Sequence[PlacementJob]) -> Iterator[Answer]:
        self.jobs += jobs
        slowness = {"1": 1.5, "2": 1.0}
        for job in jobs:
            slow = slowness[job.regions[0][0]]
            yield Answer((10 * slow,) * 3, 1e-6, 1e-6, pace_ms=USUAL_MS * slow)


class NoBuilders:
    def build(self, jobs: Iterable[BuildJob]) -> dict[BuildJob, str]:
        return {job: "build: no" if job == build_job(UNBUILT.regions[0]) else "" for job in jobs}


def evaluator(pool: Any) -> MeasuredEvaluator:
    builders: Any = NoBuilders()
    return MeasuredEvaluator(pool, builders, TIMING, 100.0, predicted_ms, 5.0, USUAL_MS)


def predicted_ms(placement: Placement) -> float:
    return math.inf if placement == HOPELESS else 1.0


def test_the_same_work_has_the_same_latency_however_fast_the_machine_was() -> None:
    pool = Pool()
    measured = evaluator(pool)
    slow, fast = measured.evaluate([SLOW, FAST])
    assert slow.latency_ms == pytest.approx(10.0)
    assert fast.latency_ms == pytest.approx(10.0)
    measured.evaluate([FAST])
    assert {job.usual_pace_ms for job in pool.jobs} == {USUAL_MS}
    assert pool.jobs[-1].behind_ms == pytest.approx(RACE * 10.0), "the best so far, at the usual pace as well"


def test_what_is_hopeless_or_cannot_be_built_is_not_measured_and_says_why() -> None:
    pool = Pool()
    hopeless, measured, unbuilt = evaluator(pool).evaluate([HOPELESS, FAST, UNBUILT])
    assert hopeless.reason.startswith(FAR_BEHIND)
    assert unbuilt.reason == "build: no"
    assert measured.ok
    assert len(pool.jobs) == 1


def test_placements_and_baselines_are_measured_beside_the_yardstick(tmp_path: Path) -> None:
    regions = tuple((nodes, "onnxruntime", "default") for nodes in ("1", "2"))
    jobs: list[Job] = [
        WholeJob("onnxruntime", "default", str(tmp_path / "whole.collage"), TIMING),
        PlacementJob(regions, TIMING, 1e9),
    ]
    with Sandbox(make_setting(tmp_path), (), 2**30) as sandbox:
        paces = [sandbox.call(job, 60.0).pace_ms for job in jobs]
    assert all(pace is not None and pace > 0 for pace in paces)
