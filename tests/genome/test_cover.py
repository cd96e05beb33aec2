"""The dynamic program finds the optimum: against brute force, against an exact 0-1 program, and within its effort."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Border, Copies, CostModel
from collage_evo.genome.cover.dynamic_program import MOST_STATES, cheapest_covers, differing_covers
from collage_evo.genome.cover.frontier import Frontier
from collage_evo.genome.encoding import place, runnable_order
from collage_evo.genome.layout import narrow_order
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph
from collage_evo.patterns.match import Match
from tests.support.exact import exact_cover
from tests.support.optimum import acyclic_covers, cover_ms
from tests.support.spaces import (
    chain,
    check_placement,
    make_graph,
    make_space,
    nasnet_like,
    random_graph,
    resnet_like,
    small_space,
)

COPIES = st.sampled_from((0.0, 0.2, 1.0))
"""What copies between two devices cost; 0: all engines are on one."""


@settings(max_examples=200)
@given(st.integers(0, 10**9), st.sampled_from((1, 1, 3)), COPIES)
def test_equals_brute_force(seed: int, k: int, copies: float) -> None:
    space = small_space(seed, copies)
    truth = sorted(cover_ms(space, cover) for cover in acyclic_covers(space))
    result = cheapest_covers(space, k=k)
    assert result.exact
    assert [c.cost_ms for c in result.covers] == pytest.approx(truth[:k])
    assert len({frozenset(c.matches) for c in result.covers}) == len(result.covers)
    for cover in result.covers:
        assert cover.cost_ms == pytest.approx(cover_ms(space, cover.matches))
        assert runnable_order(cover.matches, space)


@settings(max_examples=80)
@given(st.integers(0, 10**9), st.integers(1, 40), COPIES)
def test_bound_holds_when_states_are_cut(seed: int, effort: int, copies: float) -> None:
    space = small_space(seed, copies)
    best = cheapest_covers(space).cost_ms
    try:
        result = cheapest_covers(space, effort=effort)
    except InputError:
        return
    assert result.bound_ms <= best + 1e-6
    assert best <= result.cost_ms + 1e-6
    if result.exact:
        assert result.cost_ms == pytest.approx(best)


@settings(max_examples=80)
@given(st.integers(0, 10**9), COPIES)
def test_prices_are_a_lower_bound(seed: int, copies: float) -> None:
    space = small_space(seed, copies)
    total = Frontier(space, space.cost.match_ms, space.usable).prices.total
    assert total <= min(cover_ms(space, cover) for cover in acyclic_covers(space)) + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_prices_of_a_chain_on_two_devices_are_what_its_cheapest_cover_costs(seed: int) -> None:
    space = make_space(chain(25), random.Random(seed), border=0.1, copies=0.5)
    total = Frontier(space, space.cost.match_ms, space.usable).prices.total
    assert total == pytest.approx(cheapest_covers(space).cost_ms, rel=1e-5)


@pytest.mark.parametrize(("seed", "copies"), [(0, 0.5), (1, 0.0), (2, 0.0), (3, 0.5), (4, 0.5), (5, 0.0)])
def test_equals_exact_program(seed: int, copies: float) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 45, reach=5) if seed % 2 else resnet_like(6)
    engines = 4 if copies else 3
    border, rewrites = (0.05, 0.3, 1.0)[seed % 3], 30 * (seed in (1, 2, 4))
    space = make_space(graph, rng, engines, border=border, families=seed > 2, copies=copies, rewrites=rewrites)
    result, truth = cheapest_covers(space), exact_cover(space)
    assert result.exact
    assert truth.cost_ms == pytest.approx(cover_ms(space, truth.matches), rel=1e-5)
    assert result.cost_ms == pytest.approx(truth.cost_ms, rel=1e-5)


def on_two_devices(graph: Graph, there_ms: float, copies: Copies) -> SearchSpace:
    """Nodes of 1 ms on the host, or of ``there_ms`` on the device; borders are free."""
    host, there = ("b0", "default"), ("b1", "default")
    count = len(graph.nodes)
    matches = tuple(Match(1 << node, *engine) for engine in (host, there) for node in range(count))
    ms = (1.0,) * count + (there_ms,) * count
    borders = dict.fromkeys((host, there), Border(0, 0))
    return SearchSpace(graph, matches, CostModel(ms, borders, off_host=frozenset({there}), copies=copies))


@pytest.mark.parametrize(("fixed_ms", "device_nodes"), [(0.5, 5), (3.0, 0)])
def test_a_chain_goes_to_a_faster_device_where_that_is_worth_two_copies(fixed_ms: float, device_nodes: int) -> None:
    copy = Border(fixed_ms, 0)
    space = on_two_devices(chain(5), 0.1, Copies(copy, copy))
    cover = cheapest_covers(space).covers[0]
    assert sum(space.matches[match].backend == "b1" for match in cover.matches) == device_nodes
    assert cover.cost_ms == pytest.approx(2 * fixed_ms + 0.5 if device_nodes else 5.0)
    assert space.predict(place(cover.matches, space)) == pytest.approx(cover.cost_ms)


def test_a_tensor_is_copied_once_however_many_read_it_there() -> None:
    """Four readers of one tensor: the copy is paid once, by whichever of them comes first."""
    space = on_two_devices(make_graph([[], [0], [0], [0], [0]]), 0.1, Copies(Border(1.5, 0), Border(0, 0)))
    assert cheapest_covers(space).covers[0].cost_ms == pytest.approx(1.5 + 0.5)
    first_on_host = place([0, *(5 + node for node in range(1, 5))], space)
    assert space.predict(first_on_host) == pytest.approx(1.0 + 1.5 + 0.4)


def test_cycle_is_never_covered() -> None:
    """Two matches, each of which waits for the other: cheap, but no placement."""
    preds = [[], [], [0], [1]]  # 0 -> 2, 1 -> 3; {0, 3} and {1, 2} wait for each other
    graph = make_graph(preds)
    matches = [*(Match(1 << i, "b0") for i in range(4)), Match(0b1001, "b1"), Match(0b0110, "b1")]
    model = CostModel((5.0,) * 4 + (0.1, 0.1), {("b0", "default"): Border(0, 0), ("b1", "default"): Border(0, 0)})
    space = SearchSpace(graph, tuple(matches), model)
    assert runnable_order((4, 5), space) is None
    assert cheapest_covers(space).cost_ms == pytest.approx(10.1)
    assert exact_cover(space).cost_ms == pytest.approx(10.1)


def test_order_finishes_one_branch_before_the_next() -> None:
    assert narrow_order(make_graph([[], [0], [], [2], [1], [3]])) in ([0, 1, 4, 2, 3, 5], [2, 3, 5, 0, 1, 4])


def test_match_that_waits_is_reserved() -> None:
    """A residual block as one match of its two ends is only runnable after the branch between them."""
    graph = make_graph([[], [], [0], [1, 2]])
    matches = [*(Match(1 << i, "b0") for i in range(4)), Match(0b1010, "b1")]
    model = CostModel((1.0,) * 4 + (0.5,), {("b0", "default"): Border(0, 0), ("b1", "default"): Border(0, 0)})
    result = cheapest_covers(SearchSpace(graph, tuple(matches), model))
    assert set(result.covers[0].matches) == {0, 2, 4}
    assert result.covers[0].matches.index(4) == 2


def test_diverse_covers_differ_and_cost_what_they_say() -> None:
    space = make_space(resnet_like(4), random.Random(3))
    covers = tuple(differing_covers(space, 4))
    assert len(covers) == 4
    assert covers[0].cost_ms == pytest.approx(cheapest_covers(space).cost_ms)
    for cover in covers:
        assert cover.cost_ms == pytest.approx(cover_ms(space, cover.matches))
    shared = [len(set(covers[0].matches) & set(c.matches)) / len(covers[0].matches) for c in covers[1:]]
    assert min(shared) < 0.8


@pytest.mark.parametrize("copies", [0.0, 0.5])
def test_placement_costs_no_less_than_the_program_says(copies: float) -> None:
    for seed in range(20):
        space = make_space(random_graph(random.Random(seed), 30), random.Random(seed), copies=copies)
        result = cheapest_covers(space)
        placement = place(result.covers[0].matches, space)
        check_placement(space.graph, placement)
        assert space.predict(placement) >= result.cost_ms - 1e-9


@pytest.mark.parametrize(("nodes", "copies"), [(1000, 0.0), (200, 0.5)])
def test_large_branchy_graph_within_its_effort(nodes: int, copies: float) -> None:
    rng = random.Random(1)
    space = make_space(nasnet_like(nodes, rng), rng, engines=4, extra=1.5, copies=copies)
    result = cheapest_covers(space, effort=MOST_STATES // 4)
    assert result.states < 1.5 * MOST_STATES // 4
    assert result.bound_ms <= result.cost_ms < 1.02 * result.bound_ms
    check_placement(space.graph, place(result.covers[0].matches, space))


def test_no_cover_is_an_error_that_names_the_node() -> None:
    graph = make_graph([[], [0]])
    model = CostModel((1.0, math.inf), {("b0", "default"): Border(0, 0)})
    with pytest.raises(InputError, match=r'"n1" \(Op1\).*b1: no such kernel'):
        SearchSpace(graph, (Match(1, "b0"), Match(2, "b0")), model, {1: {"b1": "no such kernel"}})
    overlap = make_graph([[], [0], [1]])
    model = CostModel((1.0, 1.0), {("b0", "default"): Border(0, 0)})
    with pytest.raises(InputError, match="do not fit together"):
        cheapest_covers(SearchSpace(overlap, (Match(0b011, "b0"), Match(0b110, "b0")), model))
