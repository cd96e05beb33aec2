"""Any genome decodes to a valid placement, and encoding is canonical."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.encoding import decode, encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.greedy import (
    backend_placement,
    engine_placement,
    greedy_placement,
    rewritten_placement,
)
from collage_evo.genome.settings import MUTATION_WEIGHTS, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.variation import (
    MUTATIONS,
    change_copies,
    change_engine,
    crossover,
    mutate,
    mutation_weights,
    random_genome,
)
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Match, Placement, Region
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.seeds import make_seeds
from tests.support.numerics import in_int8
from tests.support.spaces import (
    check_placement,
    encoder_like,
    make_graph,
    make_space,
    nasnet_like,
    random_graph,
    resnet_like,
)


def wild_space(seed: int) -> SearchSpace:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 24), reach=rng.choice((2, 5, 24)))
    extra, largest, rewrites = rng.choice((0, 1, 3)), rng.choice((3, 8)), rng.choice((0, 8))
    return make_space(graph, rng, rng.randint(1, 4), extra=extra, largest=largest, rewrites=rewrites)


@settings(max_examples=400)
@given(st.integers(0, 10**9))
def test_decoding_is_total_and_encoding_canonical(seed: int) -> None:
    space = wild_space(seed)
    rng = random.Random(seed)
    genome = Genome(
        tuple(rng.randrange(-50, 50) for _ in space.graph.nodes), tuple(rng.randrange(-3, 9) for _ in space.edges)
    )
    placement = decode(genome, space)
    check_placement(space.graph, placement)
    assert sum(space.matches[m].nodes for r in placement.regions for m in r.matches) == space.graph.all_nodes
    canonical = encode(placement, space)
    assert decode(canonical, space) == placement
    assert [r.matches for r in decode(canonical, space).regions] == [r.matches for r in placement.regions]
    assert encode(decode(canonical, space), space) == canonical


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_operators_give_decodable_genomes(seed: int) -> None:
    space = wild_space(seed)
    rng = random.Random(seed)
    one, other = random_genome(space, rng), random_genome(space, rng)
    children = [crossover(one, other, space, rng), mutate(one, space, rng)]
    children += [mutation(other, space, rng) for mutation in MUTATIONS]
    for child in children:
        assert (len(child.choices), len(child.merges)) == (len(space.graph.nodes), len(space.edges))
        check_placement(space.graph, decode(child, space))


def test_nodes_without_a_match_of_their_own() -> None:
    """Choices that leave a node uncovered cannot be repaired one by one: some cover is found all the same."""
    graph = make_graph([[], [0], [1], [2]])
    matches = (Match(0b0011, "a"), Match(0b1100, "a"), Match(0b0110, "b"), Match(0b0001, "b"), Match(0b1000, "a"))
    borders = {("a", "default"): Border(0, 0), ("b", "default"): Border(0, 0)}
    space = SearchSpace(graph, matches, CostModel((2.0, 2.0, 1.0, 1.0, 1.0), borders))
    for a in range(2):
        for b in range(2):
            check_placement(graph, decode(Genome((a, b, a, b), (1, 1, 1)), space))
    overlap = (Match(0b0111, "a"), Match(0b1110, "b"), Match(0b0001, "b"))
    space = SearchSpace(graph, overlap, CostModel((1.0, 1.0, 1.0), borders))
    check_placement(graph, decode(Genome((0, 0, 0, 0), (1, 1, 1)), space))


def test_equal_neighbours_do_not_merge_around_another_engine() -> None:
    """0 -> 1 -> 2 and 0 -> 2 with another engine on 1: merging 0 and 2 would close a cycle."""
    graph = make_graph([[], [0], [0, 1]])
    matches = (Match(1, "a"), Match(2, "b"), Match(4, "a"), Match(2, "a"))
    borders = {("a", "default"): Border(1, 0), ("b", "default"): Border(2, 0)}
    space = SearchSpace(graph, matches, CostModel((1.0, 1.0, 1.0, 9.0), borders))
    apart = place((0, 1, 2), space)
    assert [region.nodes for region in apart.regions] == [1, 2, 4]
    # x -> 0, 0 -> 1, 0 -> 2, 1 -> 2, 2 -> caller
    assert space.predict(apart) == pytest.approx(3 + 1 + 3 + 2 + 3 + 1)
    together = place((0, 3, 2), space)
    assert [region.nodes for region in together.regions] == [7]
    assert space.predict(together) == pytest.approx(11 + 2)
    assert space.predict(decode(Genome((0, 0, 0), (0, 0, 0)), space)) > 13


def test_placement_of_unknown_origin_cannot_be_encoded() -> None:
    space = make_space(make_graph([[], [0]]), random.Random(0))
    with pytest.raises(InputError, match="do not name the matches"):
        encode(Placement((Region(3, "b0"),)), space)


@settings(max_examples=20)
@given(st.integers(0, 10**9))
def test_seeds_are_valid_distinct_and_survive_encoding(seed: int) -> None:
    space = wild_space(seed)
    seeds = make_seeds(space)
    placements = [decode(genome, space) for _, genome in seeds]
    assert next(iter(seeds))[0] == Origin(Way.DYNAMIC_PROGRAM)
    assert len({placement.key for placement in placements}) == len(placements)
    for placement in placements:
        check_placement(space.graph, placement)
        assert space.predict(placement) >= seeds.dp.bound_ms - 1e-6


def test_greedy_follows_its_order_and_single_backend_stays_alone() -> None:
    space = make_space(resnet_like(3), random.Random(2), engines=4, support=1.0)
    for engine in space.engines:
        assert {r.engine for r in greedy_placement(space, [engine]).regions} == {engine}
        assert {r.engine for r in engine_placement(space, engine).regions} == {engine}
        assert {r.backend for r in backend_placement(space, engine[0]).regions} == {engine[0]}
    space = make_space(resnet_like(3), random.Random(2), engines=4, support=0.5)
    partial = greedy_placement(space, [("b2", "default"), ("b0", "default")])
    engines = {n: r.engine for r in partial.regions for n in range(len(space.graph.nodes)) if r.nodes >> n & 1}
    assert {engines[n] for n in engines if ("b2", "default") not in space.node_engines[n]} == {("b0", "default")}


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python ``call`` executes: what it takes, on a busy machine too."""
    count = 0

    def note(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_decoding_takes_a_bounded_time_for_each_node() -> None:
    rng = random.Random(1)
    for graph in (resnet_like(), nasnet_like(1000, rng)):
        space = make_space(graph, rng, engines=4, extra=1.5)
        first, *genomes = [random_genome(space, rng) for _ in range(4)]
        decode(first, space)  # what all genomes share is made once
        assert max(lines_run(partial(decode, genome, space)) for genome in genomes) < 300 * len(graph.nodes)


def test_matches_of_one_family_merge_across_arithmetics_and_pay_only_what_is_their_own_at_the_seam() -> None:
    graph = make_graph([[], [0], [1]])
    float32, int8, other = ("b1", "default"), ("b1", "int8"), ("b2", "default")
    matches = (
        Match(1, *float32), Match(2, *int8, base="default", edits=in_int8(2)), Match(4, *float32), Match(4, *other)
    )
    borders = {float32: Border(1.0, 0.0), int8: Border(1.5, 0.0), other: Border(0.25, 0.0)}
    space = SearchSpace(graph, matches, CostModel((1.0,) * 4, borders, families={int8: float32}))
    joined = place((0, 1, 2), space)
    (region,) = joined.regions
    assert (region.nodes, region.family, region.numerics) == (7, float32, in_int8(2))
    assert [region.engine_of(node) for node in range(3)] == [float32, int8, float32]
    assert decode(encode(joined, space), space) == joined
    caller, seam = 2 * 1.0, 1.5 - 1.0  # in and out of the piece; what only int8 pays, twice
    assert space.predict(joined) == pytest.approx(3 + caller + 2 * seam)
    mixed = place((0, 1, 3), space)
    assert [region.nodes for region in mixed.regions] == [3, 4]
    assert space.predict(mixed) == pytest.approx(3 + 1.0 + seam + (1.5 + 0.25) + 0.25)
    unquantised = replace(space, matches=(*matches[:1], Match(2, *float32), *matches[2:]))
    assert joined.key != place((0, 1, 2), unquantised).key


def test_a_rewritten_match_merges_with_its_plain_neighbours_at_no_cost() -> None:
    graph = make_graph([[], [0], [1]])
    plain, int8, written = ("b", "default"), ("b", "int8"), ("b", "default~rule")
    matches = (
        Match(1, *plain),
        Match(2, *written, base="default", edits=(("rule", 2),)),
        Match(4, *plain),
        Match(2, *plain),
        Match(4, *int8, base="default", edits=in_int8(4)),
    )
    borders = {plain: Border(1.0, 0.0), int8: Border(0.5, 0.0)}
    space = SearchSpace(graph, matches, CostModel((1.0,) * 5, borders, families={int8: plain, written: plain}))
    joined = place((0, 1, 2), space)
    (region,) = joined.regions
    assert (region.nodes, region.family, region.rewrites) == (7, plain, (("rule", 2),))
    assert [region.engine_of(node) for node in range(3)] == [plain, written, plain]
    assert space.predict(joined) == pytest.approx(3 + 2 * 1.0)
    assert decode(encode(joined, space), space) == joined
    assert joined.key != place((0, 3, 2), space).key
    both = place((0, 1, 4), space)
    assert (both.regions[0].rewrites, both.regions[0].numerics) == ((("rule", 2),), in_int8(4))
    assert space.predict(both) == pytest.approx(3 + 1.0 + 0.5 + (1.0 + 0.5 - 2 * 0.5))


def test_a_region_that_moves_to_another_engine_may_be_rewritten_there() -> None:
    written = Match(1, "b", "default~rule", base="default", edits=(("rule", 1),))
    borders = {(name, "default"): Border(0.0, 0.0) for name in "ab"}
    space = SearchSpace(make_graph([[]]), (Match(1, "a"), written), CostModel((1.0, 1.0), borders))
    start = encode(place((0,), space), space)
    moved = {decode(change_engine(start, space, random.Random(seed)), space) for seed in range(20)}
    assert moved == {place((0,), space), place((1,), space)}


def test_all_copies_of_a_part_move_to_one_engine() -> None:
    space, rng = make_space(encoder_like(4), random.Random(2), engines=3, support=1.0), random.Random(0)
    kinds = kinds_of(space.graph)
    start = encode(engine_placement(space, space.engines[0]), space)
    together = 0
    for _ in range(30):
        moved = change_copies(start, space, rng)
        engine = [space.matches[space.candidates[n][gene]].engine for n, gene in enumerate(moved.choices)]
        for kind in set(kinds):
            together += len({engine[node] for node, other in enumerate(kinds) if other == kind}) == 1
    assert together > 0.95 * 30 * len(set(kinds))
    assert decode(moved, space).key != decode(start, space).key


def test_copies_change_together_only_where_blocks_repeat() -> None:
    def weight(graph: Graph, settings: GaSettings) -> float:
        space = make_space(graph, random.Random(2), engines=2)
        return mutation_weights(settings, space)[MUTATIONS.index(change_copies)]

    assert weight(encoder_like(3), GaSettings()) == 1.0
    assert weight(resnet_like(2), GaSettings()) == 0.0
    only = GaSettings(**{name: float(name == "change_copies") for name in MUTATION_WEIGHTS})
    assert weight(resnet_like(2), only) == 1.0


def test_a_region_tells_what_is_rewritten_in_one_order() -> None:
    graph = make_graph([[], [0]])
    matches = [Match(site, "b", "default~rule", base="default", edits=(("rule", site),)) for site in (2, 1)]
    space = SearchSpace(graph, tuple(matches), CostModel((1.0, 1.0), {("b", "default"): Border(0.0, 0.0)}))
    (region,) = place((0, 1), space).regions
    assert region.rewrites == (("rule", 1), ("rule", 2))


def test_an_engine_alone_leaves_what_it_does_not_take_to_its_family_then_to_its_backend() -> None:
    graph = make_graph([[], [0], [1]])
    quantised = Match(1, "b", "int8", base="default")
    family = Match(2, "b", "default")
    backend, other = Match(4, "b", "other"), Match(4, "c")
    rest = (Match(2, "b", "other"), Match(2, "c"), Match(1, "c"))
    matches = (quantised, family, backend, other, *rest)
    engines = {match.engine: Border(0.0, 0.0) for match in matches}
    cost = CostModel((9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0), engines, families={("b", "int8"): ("b", "default")})
    first, second = engine_placement(SearchSpace(graph, matches, cost), ("b", "int8")).regions
    assert (first.nodes, first.family, first.numerics) == (3, ("b", "default"), quantised.numerics)
    assert (second.nodes, second.family) == (4, ("b", "other"))


def test_what_an_engine_alone_leaves_is_not_written_by_one_that_writes_more_but_by_one_that_writes_less() -> None:
    graph = make_graph([[], [0], [1]])
    plain = [Match(1 << node, "b", "default") for node in range(3)]
    heavy = [Match(1 << node, "b", "int8", base="default", edits=in_int8(1 << node)) for node in (0, 2)]
    every = Match(0b110, "b", "int8-all", base="default", edits=in_int8(0b110))
    matches = (*plain, *heavy, every, Match(1, "b", "int8-all", base="default", edits=in_int8(1)))
    families = {("b", "int8"): ("b", "default"), ("b", "int8-all"): ("b", "default")}
    borders = {match.engine: Border(0.0, 0.0) for match in matches}
    space = SearchSpace(graph, matches, CostModel((1.0,) * len(matches), borders, families=families))
    (region,) = engine_placement(space, ("b", "int8")).regions
    assert region.numerics == in_int8(0b101), "the second operator stays as it is"
    without = replace(space, matches=matches[:-1], cost=replace(space.cost, match_ms=(1.0,) * (len(matches) - 1)))
    (region,) = engine_placement(without, ("b", "int8-all")).regions
    assert region.numerics == in_int8(0b111), "the first is written by the engine that writes less"


def test_what_is_rewritten_is_a_seed_though_the_whole_that_hides_it_looks_as_cheap() -> None:
    graph = resnet_like(2)
    parts = [Match(1 << node, "b") for node in range(len(graph.nodes))]
    written = Match(2, "b", "default~rule", base="default", edits=(("rule", 2),))
    matches = (*parts, written, Match(graph.all_nodes, "b"))
    costs = (*(1.0 for _ in parts), 0.5, 0.1)
    space = SearchSpace(graph, matches, CostModel(costs, {("b", "default"): Border(0.0, 0.0)}))
    assert rewritten_placement(space, "b") == place([0, len(parts), *range(2, len(parts))], space)
    assert Origin(Way.REWRITTEN, ("b",)) in [kind for kind, _ in make_seeds(space)]
    plain = replace(space, matches=matches[:-2], cost=replace(space.cost, match_ms=costs[:-2]))
    assert rewritten_placement(plain, "b") is None


def test_a_seed_may_rewrite_around_a_smaller_place_that_may_be_rewritten_too() -> None:
    graph = make_graph([[], [0], [1]])
    parts = [Match(1 << node, "b") for node in range(3)]
    written = [Match(site, "b", "default~rule", base="default", edits=(("rule", site),)) for site in (1, 3)]
    costs = CostModel((1.0, 1.0, 1.0, 0.9, 0.5), {("b", "default"): Border(0.0, 0.0)})
    space = SearchSpace(graph, (*parts, *written), costs)
    assert rewritten_placement(space, "b") == place((4, 2), space)


def test_matches_that_differ_in_what_is_rewritten_are_different_choices() -> None:
    graph = make_graph([[], [0]])
    one, other = (Match(3, "b", "default~rule", base="default", edits=(("rule", site),)) for site in (1, 3))
    cost = CostModel((2.0, 1.0), {("b", "default"): Border(0, 0)}, families={one.engine: one.family})
    space = SearchSpace(graph, (one, other), cost)
    assert space.usable == (0, 1)
    assert len({place((match,), space).key for match in space.usable}) == 2
    assert space.engines == (("b", "default"),)
    single = replace(cost, match_ms=(2.0,))
    assert len({SearchSpace(graph, (match,), single).digest for match in (one, other)}) == 2


def test_a_backend_alone_rewrites_nothing() -> None:
    space = make_space(resnet_like(2), random.Random(3), engines=4, support=1.0, rewrites=40)
    assert any(match.rewrites for match in space.matches)
    for engine in space.engines:
        greedy = greedy_placement(space, [engine])
        alone = (backend_placement(space, engine[0]), engine_placement(space, engine), greedy)
        assert not any(region.rewrites for placement in alone for region in placement.regions)
    cheap = tuple(0.01 if match.rewrites else 1.0 for match in space.matches)
    dp = next(iter(make_seeds(replace(space, cost=replace(space.cost, match_ms=cheap)))))
    assert any(region.rewrites for region in decode(dp[1], space).regions)
