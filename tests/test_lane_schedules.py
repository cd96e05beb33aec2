"""The simulated machine of ``benchmarks/lane_schedules.py``, and IOS's stages on it."""

from __future__ import annotations

import importlib
import math
import random
from pathlib import Path
from typing import Any

import pytest

from collage_evo.backends.lanes.estimate import node_ms
from collage_evo.config import parse_config
from collage_evo.errors import InputError
from collage_evo.fitness.costs.matches import CostTable
from collage_evo.fitness.costs.model import Border, CostModel
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.files import save_model
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Match
from collage_evo.run.directory import start_run
from collage_evo.run.saved_costs import MeasuredCosts, write_costs
from collage_evo.testing.models import chain
from tests.support.branchy import random_net, towers


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    return importlib.import_module("lane_stages")


@pytest.fixture
def schedules(stages: Any) -> Any:
    return importlib.import_module("lane_schedules")


def test_independent_units_share_a_stage_and_its_cores(stages: Any) -> None:
    assert stages.ios_ms([[1.0, 0.75], [1.0, 0.75]], [0, 0], 0.125) == (1.125, 24)


def test_units_that_wait_for_each_other_get_all_cores(stages: Any) -> None:
    assert stages.ios_ms([[1.0, 0.75], [1.0, 0.75]], [0b10, 0], 0.125)[0] == 1.5


def test_a_long_unit_gets_more_cores_than_short_ones(stages: Any) -> None:
    ms = [[4.0, 2.0, 1.0], [1.0, 0.5, 0.25], [1.0, 0.5, 0.25]]
    assert stages.ios_ms(ms, [0, 0, 0], 0.0)[0] == 1.5  # the long one on all, or with one of the short ones beside


@pytest.mark.parametrize("cores", [2, 8])
@pytest.mark.parametrize("name", ["towers", "random"])
def test_no_schedule_beats_the_bound_and_none_chosen_is_worse_than_one_after_the_other(
    schedules: Any, name: str, cores: int
) -> None:
    graph = build_graph(towers() if name == "towers" else random_net(random.Random(5), 25, width=3))
    row = schedules.simulate(name, graph, node_ms(graph), cores)
    assert row.bound_ms <= min(row.ios_ms, row.lanes_ms) + 1e-9
    assert max(row.ios_ms, row.lanes_ms, row.one_core_lanes_ms) <= row.serial_ms + 1e-9
    if name == "towers":
        assert row.lanes_ms < 0.9 * row.serial_ms


def test_node_times_are_those_that_a_run_measured(schedules: Any, tmp_path: Path) -> None:
    start_run(tmp_path / "run", parse_config({"model": {"source": "any.onnx"}}, (), "test"))
    graph = build_graph(chain(1))
    one, other = "onnxruntime", "openvino"
    parts = ((0b01, one), (0b01, other), (0b01, other, "bf16"), (0b10, one), (0b11, one))
    matches = tuple(Match(*part) for part in parts)
    cost = CostModel((3.0, 2.0, 0.5, math.inf, 4.0), {match.engine: Border(0.0, 0.0) for match in matches})
    costs = MeasuredCosts(CostTable(cost.match_ms, {}, frozenset()), SearchSpace(graph, matches, cost), 4, 0, 0)
    (tmp_path / "run" / "work").mkdir()
    save_model(graph.model, tmp_path / "run" / "work" / "normalised.onnx")
    write_costs(tmp_path / "run" / "work" / "costs.json", "key", costs)
    found, times = schedules.run_graph(tmp_path / "run")
    assert len(found.nodes) == 2
    assert times == [2.0, pytest.approx(list(node_ms(graph))[1])]
    start_run(tmp_path / "two", parse_config({"model": {"source": "any.onnx"}, "target": {"threads": 2}}, (), "test"))
    with pytest.raises(InputError, match="for several threads"):
        schedules.run_graph(tmp_path / "two")
