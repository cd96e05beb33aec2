"""What lanes are given: all work once, in an order that runs, the same numbers, and as even as branches allow."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from collage_evo.backends.lanes import assign
from collage_evo.backends.lanes import cut as cutting
from collage_evo.backends.lanes.cut import cut_branches
from collage_evo.backends.lanes.estimate import node_ms
from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View
from collage_evo.backends.lanes.work import Work
from collage_evo.errors import InputError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs
from collage_evo.models.builder import Builder
from tests.support.branchy import BranchyNet, inception, random_net, towers
from tests.support.plan_runner import run_plan


def parts_of(plan: LanePlan) -> list[Part]:
    return [step for step in plan.steps if isinstance(step, Part)]


def check(graph: Graph, lanes: int) -> LanePlan:
    """Cut ``graph``, see that the plan gives its outputs and that every operator that is left runs once."""
    plan, models = cut_branches(graph, lanes)
    feeds = random_inputs(graph.model, 0)
    made = run_plan(plan, models, feeds)
    for name, expected in zip(plan.outputs, reference_outputs(graph.model, feeds), strict=True):
        np.testing.assert_allclose(made[name], expected, rtol=1e-3, atol=1e-4)
    ran = Counter(node.op_type for model in models for node in model.graph.node)
    missing = Counter(node.op_type for node in graph.nodes) - ran
    assert not ran - Counter(node.op_type for node in graph.nodes)
    assert missing.keys() <= {"Concat", "Split"}
    assert bool(missing) == bool(plan.views)
    for view in plan.views.values():
        parent = plan.tensors[view.parent]
        assert view.start * parent.nbytes // parent.shape[view.axis] % 64 == 0
    assert {step.lane for step in plan.steps} == set(range(plan.lanes))
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
def test_an_inception_block_is_two_lanes_of_about_equal_work_without_a_concat(blocks: int) -> None:
    graph = build_graph(inception(blocks))
    plan, models = cut_branches(graph, 2)
    check(graph, 2)
    assert len(models) == 2 * blocks
    assert not any(node.op_type == "Concat" for model in models for node in model.graph.node)
    work = [0.0, 0.0]
    for part, model in zip(parts_of(plan), models, strict=True):
        work[part.lane] += sum(node_ms(build_graph(model)))
    assert max(work) < 0.6 * sum(work)


def test_a_concat_of_a_batch_stays_an_operator() -> None:
    plan = check(build_graph(inception(batch=2)), 2)
    assert not plan.views


def test_a_concat_whose_parts_begin_inside_a_cache_line_stays_an_operator() -> None:
    plan = check(build_graph(inception(size=27, width=20)), 2)
    assert not plan.views


def test_a_concat_of_concats_is_one_piece_of_memory() -> None:
    net = BranchyNet(0)
    x = net.image("x", 128)
    first, second, third = (net.conv(x, 64, 5) for _ in range(3))
    inner = net.joined(first, second)
    outer = net.joined(third, inner)
    plan = check(build_graph(net.model(outer)), 3)
    assert plan.views[inner] == View(outer, 1, 64, 192)
    assert [plan.views[name] for name in (first, second)] == [View(inner, 1, 0, 64), View(inner, 1, 64, 128)]


def test_what_a_concat_takes_from_outside_is_copied_into_its_place() -> None:
    net = BranchyNet(0)
    x, made_before = net.image("x", 128), net.image("y", 32)
    plan = check(build_graph(net.model(net.joined(net.conv(x, 64, 5), made_before, net.conv(x, 64, 5)))), 2)
    (copy,) = (step for step in plan.steps if isinstance(step, Copy))
    assert (copy.source, copy.start, copy.stop) == ("y", 64, 96)
    assert len(plan.views) == 2


def test_what_was_copied_into_its_place_is_there_for_who_reads_it() -> None:
    net = BranchyNet(0)
    x, made_before = net.image("x", 128), net.image("y", 32)
    joined = net.joined(net.conv(x, 64, 5), made_before, net.conv(x, 64, 5))
    plan = check(build_graph(net.model(net.conv(joined, 64), net.conv(joined, 64))), 2)
    place = next(place for place, step in enumerate(plan.steps) if isinstance(step, Copy))
    assert place < max(i for i, step in enumerate(plan.steps) if isinstance(step, Part) and joined in step.inputs)


def test_what_lies_twice_in_a_concat_has_no_place_there() -> None:
    net = BranchyNet(0)
    x = net.image("x", 128)
    first = net.conv(x, 64, 5)
    assert not check(build_graph(net.model(net.joined(first, net.conv(x, 64, 5), first))), 2).views


def test_what_a_split_gives_is_read_where_it_lies_also_inside_a_concat() -> None:
    net = BranchyNet(0)
    x = net.image("x", 128)
    both = net.conv(x, 128, 3)
    joined = net.joined(both, net.conv(x, 64, 5))
    halves = net.halves(both)
    plan = check(build_graph(net.model(joined, *(net.conv(half, 128, 5) for half in halves))), 2)
    assert plan.views[both].parent == joined
    assert {plan.views[half].parent for half in halves} == {both}


def test_what_a_split_gives_is_read_where_it_lies() -> None:
    net = BranchyNet(0)
    upper, lower = net.halves(net.image("x", 128))
    plan = check(build_graph(net.model(net.joined(net.conv(upper, 64, 5), net.conv(lower, 64, 5)))), 2)
    assert {view.parent for view in plan.views.values()} == {"x", *plan.outputs}


def test_an_output_that_a_concat_also_reads_has_memory_of_its_own() -> None:
    net = BranchyNet(0)
    x = net.image("x", 128)
    first, second = net.conv(x, 64, 5), net.conv(x, 64, 5)
    plan = check(build_graph(net.model(first, net.joined(first, second))), 2)
    assert not plan.views


def test_towers_are_a_lane_each() -> None:
    plan = check(build_graph(towers()), 2)
    assert Counter(part.lane for part in parts_of(plan)) in (Counter([0, 0, 1]), Counter([0, 1, 1]))


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
    work = Work.of(build_graph(random_net(random.Random(19), 20)))
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
