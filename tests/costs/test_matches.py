"""Equal structures cost one measurement, a resumed run knows the same, and time for costs is bounded."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.costs.database import CostDatabase
from collage_evo.costs.matches import FIRST_BATCH, CostKeys, CostMeter, Costs, CostSettings
from collage_evo.fitness.jobs import BuildJob, Compiled, CostJob, Measured
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import NodeSet
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import make_setting
from tests.support.machine import FakeMachine, FakeRegions
from tests.support.models import chain

GRAPH = build_graph(chain(3))
SETTINGS = CostSettings(TimingSettings(1, 3, 0.001, 5.0), flush=False)
CONV, RELU, LATER_CONV = (Match(1 << node, "onnxruntime") for node in (0, 1, 4))


def machine(folder: Path, late: NodeSet = 0) -> FakeMachine:
    """Each job takes 5 ms, and a second of the clock; everything compiles but ``late``."""

    def answer(job: BuildJob | CostJob) -> Measured | Compiled | Failure:
        if isinstance(job, CostJob):
            return Measured((5.0,) * 3, 1e-6, 1e-6)
        return Failure(Fault.CLOSED, "late") if job.region.nodes == late else Compiled()

    return FakeMachine(answer, make_setting(folder))


def timed(machine: FakeMachine) -> list[CostJob]:
    return [job for job in machine.jobs if isinstance(job, CostJob)]


def meter(
    machine: FakeMachine,
    folder: Path,
    run: str = "run",
    seconds: float = math.inf,
    regions: FakeRegions | None = None,
) -> CostMeter:
    database = CostDatabase(folder / run / "costs.jsonl")
    settings = replace(SETTINGS, seconds=seconds)
    regions, target = regions or FakeRegions(machine), machine.setting.target
    return CostMeter(GRAPH, regions, target, database, settings, clock=lambda: float(len(timed(machine))))


def known(meter: CostMeter, matches: Sequence[Match]) -> Costs:
    return Costs(meter, matches, far_behind=4.0)


@pytest.mark.parametrize(("seconds", "in_time"), [(0.5, [1]), (1.5, [1, 0])])
def test_no_match_is_begun_once_time_is_over_though_its_batch_was(
    tmp_path: Path, seconds: float, in_time: list[int]
) -> None:
    costs = known(meter(machine(tmp_path), tmp_path, seconds=seconds), [CONV, RELU, Match(3, "onnxruntime")])
    costs.measure([1, 0, 2], lambda _: None)
    assert list(costs.ms) == in_time
    assert not costs.known(2)
    assert not costs.failures


def test_no_more_are_compiled_than_there_is_time_to_measure(tmp_path: Path) -> None:
    here = machine(tmp_path)
    regions = FakeRegions(here)
    matches = [Match(nodes, "onnxruntime") for nodes in (1, 2, 3, 6, 7, 12, 14, 15)]
    measuring = meter(here, tmp_path, seconds=FIRST_BATCH + 2.0, regions=regions)
    known(measuring, matches).measure(range(len(matches)), lambda _: None)
    assert regions.batches == [FIRST_BATCH, 2]


def test_what_is_not_compiled_when_time_is_over_stays_unknown(tmp_path: Path) -> None:
    here = machine(tmp_path, late=CONV.nodes)
    regions = FakeRegions(here)
    costs = known(meter(here, tmp_path, seconds=5.0, regions=regions), [CONV, RELU])
    costs.measure([0, 1], lambda _: None, share=0.8)
    assert regions.waits_s == [4.0]
    assert set(costs.ms) == {1}
    assert not costs.known(0)


def test_one_engine_tells_when_the_others_are_given_up(tmp_path: Path) -> None:
    here = machine(tmp_path)
    known(meter(here, tmp_path), [CONV, replace(CONV, variant="nchw"), RELU]).measure([0, 1, 2], lambda _: None)
    asked = [(job.region.nodes, job.region.variant, job.give_up_ms) for job in timed(here)]
    assert asked == [(1, "default", math.inf), (2, "default", math.inf), (1, "nchw", 4 * 5.0)]


def test_equal_structures_cost_one_measurement(tmp_path: Path) -> None:
    here = machine(tmp_path)
    costs = known(meter(here, tmp_path), [CONV, RELU, LATER_CONV])
    costs.measure([2], lambda _: None)
    assert costs.ms[0] == costs.ms[2]
    assert not costs.known(1)
    assert len(timed(here)) == 1


def test_costs_share_a_key_only_where_as_much_is_flushed(tmp_path: Path) -> None:
    keys = []
    for mebibytes in (1, 100, 200):
        b = Builder("flushed")
        part, rest = b.op("Relu", b.input("x", (1, 16))), b.op("Tanh", b.input("y", (mebibytes, 2**18)))
        graph, target = build_graph(b.model(part, rest)), make_setting(tmp_path).target
        keys.append(CostKeys(graph, target, replace(SETTINGS, flush=True)).of(Match(1, "onnxruntime")))
    assert keys[0] != keys[1] == keys[2], "a processor's flush ends at 64 MB"


def test_a_resumed_run_takes_what_it_measured(tmp_path: Path) -> None:
    here = machine(tmp_path)
    known(meter(here, tmp_path), [CONV, RELU]).measure([0], lambda _: None)
    resumed, again = (known(meter(here, tmp_path), [CONV, RELU]) for _ in range(2))
    resumed.recall()
    again.measure([0], lambda _: None)
    assert set(resumed.ms) == set(again.ms) == {0}
    assert len(timed(here)) == 1
    other = known(meter(here, tmp_path, "other"), [CONV, RELU])
    other.recall()
    assert not other.ms
