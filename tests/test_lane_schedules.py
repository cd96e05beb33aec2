"""The simulated machine of ``benchmarks/lane_schedules.py``, and IOS's stages on it."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from collage_evo.backends.lanes.estimate import node_ms
from collage_evo.graph.read import build_graph
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
