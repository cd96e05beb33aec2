"""What lanes are given: all work once, in an order that runs, the same numbers, and as even as branches allow."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo_lanes import cut as cutting
from collage_evo_lanes.assign import BUSY_WEIGHT, schedule
from collage_evo_lanes.cut import cut_branches
from collage_evo_lanes.estimate import node_ms
from collage_evo_lanes.plan import LanePlan
from collage_evo_lanes.work import Groups, Timeline, Work
from plugins.lanes.tests.branchy import BranchyNet, inception, random_net, towers
from plugins.lanes.tests.plan_runner import run_plan


def check(graph: Graph, lanes: int) -> LanePlan:
    """Cut ``graph``, see that the plan gives its outputs and that every operator runs once."""
    plan, models = cut_branches(graph, lanes)
    feeds = random_inputs(graph.model, 0)
    made = run_plan(plan, models, feeds)
    for name, expected in zip(plan.outputs, reference_outputs(graph.model, feeds), strict=True):
        np.testing.assert_allclose(made[name], expected, rtol=1e-3, atol=1e-4)
    ran = Counter(node.op_type for model in models for node in model.graph.node)
    assert ran == Counter(node.op_type for node in graph.nodes)
    assert {part.lane for part in plan.parts} == set(range(plan.lanes))
    assert plan.lanes <= lanes
    return plan


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_parts_one_after_the_other_give_what_the_region_gives(
    seed: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(cutting, "LEAST_GAIN", -1.0)
    check(build_graph(random_net(rng, 25, batch)), rng.choice((2, 3, 8)))


@pytest.mark.parametrize("blocks", [1, 3])
def test_an_inception_block_is_two_lanes_of_about_equal_work(blocks: int) -> None:
    graph = build_graph(inception(blocks))
    plan, models = cut_branches(graph, 2)
    check(graph, 2)
    assert len(models) == 3 * blocks, "a part in each lane, and the Concat for which both lanes wait"
    work = [0.0, 0.0]
    for part, model in zip(plan.parts, models, strict=True):
        work[part.lane] += sum(node_ms(build_graph(model)))
    assert max(work) < 0.6 * sum(work)


def test_towers_are_a_lane_each() -> None:
    plan = check(build_graph(towers()), 2)
    assert Counter(part.lane for part in plan.parts) in (Counter([0, 0, 1]), Counter([0, 1, 1]))


def test_as_many_lanes_as_there_are_branches_and_no_more() -> None:
    assert check(build_graph(towers()), 8).lanes == 2


def chain_of_two(skip: bool = False) -> onnx.ModelProto:
    net = BranchyNet(0)
    x = net.image("x", 64)
    y = net.conv(net.conv(x, 64, 3), 64, 3)
    return net.model(net.same("Add", y, x) if skip else y)


def of_open_size() -> onnx.ModelProto:
    net = Builder("open")
    return net.model(net.op("Relu", net.input("x", ("batch", 4))))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        pytest.param(chain_of_two(), "estimate 1", id="one chain"),
        pytest.param(chain_of_two(skip=True), "estimate", id="a skip connection"),
        pytest.param(towers(width=16), "estimate", id="work too small for handoffs"),
        pytest.param(of_open_size(), "sizes", id="open sizes"),
    ],
)
def test_what_lanes_gain_nothing_by_is_refused(model: onnx.ModelProto, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        cut_branches(build_graph(model), 2)


@pytest.mark.parametrize("seed", [3, 25])
def test_no_two_pieces_that_follow_each_other_in_a_lane_are_better_joined(seed: int) -> None:
    graph = build_graph(random_net(random.Random(seed), 20))
    work = Work.of(graph, node_ms(graph))
    groups, timeline = schedule(work, 2)
    for lane in set(groups.lane):
        for one, other in pairwise(group for group in timeline.order if groups.lane[group] == lane):
            nodes, lanes = list(groups.nodes), list(groups.lane)
            nodes[one] |= nodes[other]
            del nodes[other], lanes[other]
            joined = Groups.of(work, nodes, lanes)
            trial = joined.timeline()
            assert trial is None or score(joined, trial) >= score(groups, timeline)


def score(groups: Groups, timeline: Timeline) -> float:
    return timeline.makespan_ms + BUSY_WEIGHT * sum(groups.ms)


def test_cutting_twice_gives_the_same() -> None:
    graph = build_graph(random_net(random.Random(3), 60))
    (plan, models), (again, others) = cut_branches(graph, 2), cut_branches(graph, 2)
    assert plan == again
    assert [model.SerializeToString() for model in models] == [model.SerializeToString() for model in others]
