"""What lanes are given: all work once, in an order that runs, the same numbers, and as even as branches allow."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo_lanes import assign
from collage_evo_lanes import cut as cutting
from collage_evo_lanes.cut import cut_branches
from collage_evo_lanes.estimate import node_ms
from collage_evo_lanes.plan import LanePlan
from collage_evo_lanes.work import Work
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


def test_what_is_one_chain_is_refused() -> None:
    net = BranchyNet(0)
    x = net.image("x", 64)
    with pytest.raises(InputError, match="estimate 1"):
        cut_branches(build_graph(net.model(net.conv(net.conv(x, 64, 3), 64, 3))), 2)


def test_a_skip_connection_is_refused() -> None:
    net = BranchyNet(0)
    x = net.image("x", 64)
    with pytest.raises(InputError):
        cut_branches(build_graph(net.model(net.same("Add", net.conv(net.conv(x, 64, 3), 64, 3), x))), 2)


def test_work_too_small_for_handoffs_is_refused() -> None:
    with pytest.raises(InputError):
        cut_branches(build_graph(towers(width=16)), 2)


def test_open_sizes_are_refused() -> None:
    net = Builder("open")
    model = net.model(net.op("Relu", net.input("x", ("batch", 4))))
    with pytest.raises(InputError, match="sizes"):
        cut_branches(build_graph(model), 2)


def test_pieces_that_follow_each_other_in_a_lane_are_joined_where_that_takes_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = build_graph(random_net(random.Random(25), 20))
    work = Work.of(graph, node_ms(graph))
    joined, timeline = assign.schedule(work, 2)
    monkeypatch.setattr(assign, "_next_pair", lambda *_: None)
    apart, longer = assign.schedule(work, 2)
    assert len(joined.nodes) < len(apart.nodes)
    assert timeline.makespan_ms <= longer.makespan_ms


def test_cutting_twice_gives_the_same() -> None:
    graph = build_graph(random_net(random.Random(3), 60))
    (plan, models), (again, others) = cut_branches(graph, 2), cut_branches(graph, 2)
    assert plan == again
    assert [model.SerializeToString() for model in models] == [model.SerializeToString() for model in others]
