"""Costs are given at one pace of the machine, equal structures cost one measurement, a resumed run knows the same."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collage_evo.fitness.costs import CostMeter, Costs, CostSettings
from collage_evo.fitness.database import CostDatabase
from collage_evo.fitness.jobs import Answer, BuildJob, CostJob
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.runtime.timing import TimingSettings
from collage_evo.testing.models import chain
from tests.fitness.helpers import make_setting

GRAPH = build_graph(chain(3))
SETTINGS = CostSettings(TimingSettings(1, 3, 0.001, 5.0), flush=False)
CONV, RELU, LATER_CONV = (Match(1 << node, "onnxruntime") for node in (0, 1, 4))


class Pool:
    """Each job takes ten times the yardstick, whose pace changes from job to job."""

    def __init__(self, folder: Path) -> None:
        self.setting = make_setting(folder)
        self.jobs: list[CostJob] = []

    def map(self, jobs: Sequence[CostJob]) -> Iterator[Answer]:
        for job in jobs:
            self.jobs.append(job)
            pace_ms = 0.2 + 0.1 * len(self.jobs)
            yield Answer((10 * pace_ms,) * 3, 1e-6, 1e-6, pace_ms=pace_ms)


class Builders:
    def build(self, jobs: Iterable[BuildJob]) -> dict[BuildJob, str]:
        return dict.fromkeys(jobs, "")


def meter(pool: Any, folder: Path, run: str = "run", pace_ms: float | None = None) -> CostMeter:
    builders: Any = Builders()
    own, shared = (CostDatabase(folder / name / "costs.sqlite") for name in (run, "shared"))
    return CostMeter(GRAPH, pool, builders, own, shared, SETTINGS, pace_ms)


def known(meter: CostMeter, matches: Sequence[Match]) -> Costs:
    return Costs(meter, matches, far_behind=4.0)


def test_the_same_work_costs_the_same_however_fast_the_machine_was(tmp_path: Path) -> None:
    costs = known(meter(Pool(tmp_path), tmp_path, pace_ms=0.5), [CONV, RELU])
    costs.measure([0, 1], lambda _: None)
    assert costs.ms == pytest.approx({0: 5.0, 1: 5.0})


def test_the_pace_stays_that_of_the_first_measurement(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    costs = known(meter(pool, tmp_path), [CONV, RELU])
    costs.measure([0], lambda _: None)
    again = known(meter(pool, tmp_path), [CONV, RELU])
    again.measure([1, 0], lambda _: None)
    assert again.ms == pytest.approx({0: costs.ms[0], 1: costs.ms[0]})


def test_equal_structures_cost_one_measurement(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    costs = known(meter(pool, tmp_path), [CONV, RELU, LATER_CONV])
    costs.measure([2], lambda _: None)
    assert costs.ms[0] == costs.ms[2]
    assert not costs.known(1)
    assert len(pool.jobs) == 1


def test_a_new_run_takes_what_others_measured_and_a_resumed_one_only_what_it_knew(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    known(meter(pool, tmp_path, "first"), [CONV, RELU]).measure([0], lambda _: None)
    second = known(meter(pool, tmp_path, "second"), [CONV, RELU])
    second.recall()
    assert set(second.ms) == {0}
    known(meter(pool, tmp_path, "third"), [CONV, RELU]).measure([1], lambda _: None)
    resumed = known(meter(pool, tmp_path, "second"), [CONV, RELU])
    resumed.recall()
    assert set(resumed.ms) == {0}
    fresh = known(meter(pool, tmp_path, "fourth"), [CONV, RELU])
    fresh.recall()
    assert set(fresh.ms) == {0, 1}


def test_what_is_far_behind_is_bounded_by_the_best_way_known(tmp_path: Path) -> None:
    costs = known(meter(Pool(tmp_path), tmp_path, pace_ms=0.5), [CONV])
    assert costs.give_up_ms(CONV) == math.inf
    costs.measure([0], lambda _: None)
    assert costs.give_up_ms(CONV) == pytest.approx(4 * 5.0)
