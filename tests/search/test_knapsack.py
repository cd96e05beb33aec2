"""The ladder of precisions: operators that save the most for their error first, stretches whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from collage_evo.genome.cost_model import Border, CostModel, Engine, bordering
from collage_evo.genome.encoding import decode
from collage_evo.genome.outcome import Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Match, Placement
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import edits_of, nodes_in
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.seeds import make_seeds
from collage_evo.search.mixtures.correction import Correction
from collage_evo.search.mixtures.knapsack import mixtures_at
from collage_evo.search.mixtures.levels import AS_PREDICTED, MAX_LEVELS
from collage_evo.search.mixtures.likely import likeliest
from tests.support.models import chain
from tests.support.numerics import in_bfloat16, in_int8
from tests.support.precise import predicted_error

GRAPH = build_graph(chain(4))
"""Convolutions at 0, 2, 4 and 6, each with a Relu behind it."""
FLOAT32, LOW, INT8 = ("a", "default"), ("a", "low"), ("a", "int8")
LOW_ERROR = (9.0, 1.0, 4.0, 2.0)
"""Of each convolution in bfloat16, in squared steps; all save 2 of 4 ms. In int8 it is 10 times as much, for 3 ms."""


def space(families: bool = True) -> SearchSpace:
    matches, ms, error2 = [], [], []
    for node in range(len(GRAPH.nodes)):
        heavy, error = node % 2 == 0, LOW_ERROR[node // 2] if node % 2 == 0 else 0.0
        base = "default" if families else ""
        matches += [Match(1 << node, *FLOAT32), Match(1 << node, *LOW, base=base, edits=in_bfloat16(1 << node))]
        ms += [4.0, 2.0] if heavy else [0.0, 0.0]
        error2 += [0.0, error]
        if heavy:
            matches.append(Match(1 << node, *INT8, base=base, edits=in_int8(1 << node)))
            ms.append(1.0)
            error2.append(10 * error)
    borders = {engine: Border(0.0, 0.0) for engine in (FLOAT32, LOW, INT8)}
    cost = CostModel(tuple(ms), borders, families={LOW: FLOAT32, INT8: FLOAT32} if families else {})
    return SearchSpace(GRAPH, tuple(matches), cost, terms={Objective.ERROR: tuple(error2)})


def with_matches(matches: Sequence[Match], ms: Sequence[float], error2: Sequence[float]) -> SearchSpace:
    """The same space with further matches, of engines of the same family."""
    plain, engines = space(), {bordering(match.engine) for match in matches} - {FLOAT32, LOW, INT8}
    cost = replace(
        plain.cost,
        match_ms=(*plain.cost.match_ms, *ms),
        borders={**plain.cost.borders, **dict.fromkeys(engines, Border(0.0, 0.0))},
        families={**plain.cost.families, **dict.fromkeys(engines, FLOAT32)},
    )
    terms = {Objective.ERROR: (*plain.terms[Objective.ERROR], *error2)}
    return SearchSpace(GRAPH, (*plain.matches, *matches), cost, terms=terms)


def first_rung(
    most: float, of: SearchSpace | None = None, engines: Sequence[Engine] = (FLOAT32, LOW, INT8)
) -> Placement:
    """What may err by ``most``, squared."""
    _, placement = next(mixtures_at(of or space(), engines, math.sqrt(most) / AS_PREDICTED[0]))
    return placement


@pytest.mark.parametrize(("most", "taken"), [(0.5, 0b0000), (1.1, 0b0010), (3.5, 0b1010), (7.5, 0b1110)])
def test_operators_that_save_the_most_for_their_error_come_first(most: float, taken: int) -> None:
    low = nodes_in(first_rung(most).regions[0].numerics, Arithmetic.BFLOAT16)
    assert low == sum(0b11 << 2 * conv for conv in range(4) if taken >> conv & 1), "with the Relu behind each"


def test_a_rung_is_one_piece_within_its_error() -> None:
    found = [placement for _, placement in mixtures_at(space(), [FLOAT32, LOW, INT8], math.sqrt(40.0))]
    assert len(found) == MAX_LEVELS
    for share, placement in zip(AS_PREDICTED[:MAX_LEVELS], found, strict=True):
        assert len(placement.regions) == 1
        assert predicted_error(space(), placement) <= share * math.sqrt(40.0) + 1e-9


def test_where_all_in_the_lowest_precision_keeps_several_shares_smaller_ones_follow() -> None:
    highest = predicted_error(space(), first_rung(1e6))
    found = [placement for _, placement in mixtures_at(space(), [FLOAT32, LOW, INT8], 2 * highest)]
    assert len({placement.key for placement in found}) == len(found) == MAX_LEVELS
    shares = [predicted_error(space(), placement) / highest / 2 for placement in found]
    assert [share <= level for share, level in zip(shares, (0.95, 0.38, 0.19, 0.27, 0.12), strict=True)] == [True] * 5


def test_what_saves_more_for_more_error_comes_after() -> None:
    placement = first_rung(25.0)
    (region,) = placement.regions
    assert nodes_in(region.numerics, Arithmetic.INT8) == 0b100, "9 for the second convolution, after all in bfloat16"
    assert predicted_error(space(), placement) ** 2 == pytest.approx(9 + 1 + 4 + 2 + 9)


def test_what_the_most_exact_match_adds_is_part_of_a_rungs_error() -> None:
    raised = tuple(max(error, 0.25) for error in space().terms[Objective.ERROR])
    below = replace(space(), terms={Objective.ERROR: raised})
    assert predicted_error(below, first_rung(4.5, below)) <= math.sqrt(4.5)


def test_what_is_rewritten_together_is_one_stretch_that_is_rewritten_in_each_precision() -> None:
    together = 0b111  # two convolutions, with the Relu between them
    edits = {FLOAT32: edits_of(("rule", together)), LOW: edits_of(*in_bfloat16(together), ("rule", together))}
    rewritten = tuple(
        Match(together, backend, f"{variant}~rule", edits=edits[backend, variant], base="default")
        for backend, variant in (FLOAT32, LOW)
    )
    found, low = with_matches(rewritten, [5.0, 2.5], [0.0, 10.0]), {}
    for most in (0.5, 5.0, 12.0, 20.0):
        placement = first_rung(most, found, [FLOAT32, LOW])
        (region,) = placement.regions
        assert region.rewrites == (("rule", together),), "float32 too is faster so"
        assert predicted_error(found, placement) <= math.sqrt(most)
        low[most] = nodes_in(region.numerics, Arithmetic.BFLOAT16)
    assert low == {0.5: 0, 5.0: 0b11000000, 12.0: 0b11110000, 20.0: 0b11111111}


def test_an_engine_rewrites_together_what_it_does_not_all_take_alone() -> None:
    plain, together = space(), 0b111
    assert not any(match.engine == INT8 and match.nodes == 0b010 for match in plain.matches), "no Relu"
    edits = edits_of(*in_int8(together), ("rule", together))
    rewritten = Match(together, INT8[0], f"{INT8[1]}~rule", edits=edits, base="default")
    found = with_matches([rewritten], [0.1], [0.0])
    _, placement = next(mixtures_at(found, [FLOAT32, INT8], 1.0))
    (region,) = placement.regions
    assert region.rewrites == (("rule", together),)
    assert found.written == space().written, "of a rewritten site only what is heavy is in int8"


def test_what_only_moves_numbers_does_not_go_to_int8_by_itself() -> None:
    moving = ("a", "int8-all")
    found = with_matches([Match(0b010, *moving, base="default", edits=in_int8(0b010))], [0.1], [0.0])
    pairs = zip(found.matches, found.cost.match_ms, strict=True)
    slower = tuple(1.0 if match.nodes == 0b010 and match.engine != moving else ms for match, ms in pairs)
    found = replace(found, cost=replace(found.cost, match_ms=slower))
    levels = [placement for _, placement in mixtures_at(found, [FLOAT32, LOW, moving], math.sqrt(25.0))]
    assert levels
    assert not any(nodes_in(region.numerics, Arithmetic.INT8) for level in levels for region in level.regions)


@pytest.mark.parametrize(("light_ms", "used"), [((0.0, 2.0), False), ((0.0, 0.0), True)])
def test_what_writes_int8_into_more_operators_is_used_only_where_it_is_faster_over_the_whole_model(
    light_ms: tuple[float, float], used: bool
) -> None:
    everywhere, ms, error2 = ("a", "int8-all"), [], []
    for node in range(len(GRAPH.nodes)):
        heavy = node % 2 == 0
        ms.append(0.9 if heavy else light_ms[node // 2 % 2])
        error2.append(10 * LOW_ERROR[node // 2] if heavy else 0.0)
    more = [Match(1 << n, *everywhere, base="default", edits=in_int8(1 << n)) for n in range(len(GRAPH.nodes))]
    _, placement = next(mixtures_at(with_matches(more, ms, error2), [FLOAT32, INT8, everywhere], 100.0))
    (region,) = placement.regions
    assert bool(nodes_in(region.numerics, Arithmetic.INT8) & 0b10101010) == used, "some stretches are faster"


def test_there_is_no_ladder_without_a_bound_or_a_family_of_several_precisions() -> None:
    assert not list(mixtures_at(space(), [FLOAT32, LOW, INT8], math.inf))
    assert not list(mixtures_at(space(families=False), [FLOAT32], 1.0))


def test_its_levels_are_the_first_seeds_and_single_engines_the_last() -> None:
    seeds = make_seeds(space(), bounds={Objective.ERROR: math.sqrt(5.0)})
    kinds = [kind for kind, _ in seeds]
    assert kinds[0] == Origin.mixture(FLOAT32)
    assert kinds[-1] == Origin(Way.SINGLE, ("a",), "low")
    assert len(decode(dict(seeds)[Origin.mixture(FLOAT32)], space()).regions) == 1


@pytest.mark.parametrize(
    ("most", "factor", "baseline_ms", "first"),
    [
        (200.0, 1.0, 16.0, "single:a/int8"),
        (100.0, 1.0, 16.0, "single:a/low"),
        (5.0, 1.0, 16.0, "ladder:a"),
        (200.0, 1.0, 4.0, "ladder:a"),
        (200.0, 1.3, 16.0, "single:a/low"),
        (200.0, 9.0, 16.0, "ladder:a"),
    ],
)
def test_an_engine_that_is_predicted_to_win_within_the_budget_comes_before_them(
    most: float, factor: float, baseline_ms: float, first: str
) -> None:
    corrections = {FLOAT32: Correction(factor)} if factor > 1 else {}
    seeds = make_seeds(space(), {Objective.ERROR: math.sqrt(most)}, {FLOAT32: baseline_ms}, corrections)
    assert str(next(iter(seeds))[0]) == first


def test_between_heavy_operators_float32_stays_where_that_saves_most_of_the_error() -> None:
    plain = space()
    pairs = zip(plain.matches, plain.terms[Objective.ERROR], strict=True)
    errors = tuple(50.0 if match.engine == LOW and match.nodes & 0b10101010 else error for match, error in pairs)
    placement = first_rung(20.0, replace(plain, terms={Objective.ERROR: errors}), [FLOAT32, LOW])
    assert nodes_in(placement.regions[0].numerics, Arithmetic.BFLOAT16) == 0b01010101


def test_float32_of_a_family_is_not_far_behind_where_its_lower_precision_is_fast() -> None:
    near, far = likeliest(space(), {FLOAT32: 9.0, LOW: 4.0})
    assert (set(near), far) == ({FLOAT32, LOW, INT8}, ())
    near, far = likeliest(space(families=False), {FLOAT32: 9.0, LOW: 4.0})
    assert (set(near), far) == ({LOW, INT8}, (FLOAT32,))


OTHER, OTHER_LOW = ("b", "default"), ("b", "low")


def two_families(other_ms: float) -> SearchSpace:
    """Each convolution takes 4 and 2 ms in ``a``, 4 ms and ``other_ms`` in ``b``, in float32 and in bfloat16."""
    matches, ms, error2 = [], [], []
    for node in range(len(GRAPH.nodes)):
        heavy = node % 2 == 0
        for exact, low, low_ms in ((FLOAT32, LOW, 2.0), (OTHER, OTHER_LOW, other_ms)):
            matches += [
                Match(1 << node, *exact),
                Match(1 << node, *low, base="default", edits=in_bfloat16(1 << node)),
            ]
            ms += [4.0, low_ms] if heavy else [0.0, 0.0]
            error2 += [0.0, LOW_ERROR[node // 2] if heavy else 0.0]
    borders = {engine: Border(0.0, 0.0) for engine in (FLOAT32, LOW, OTHER, OTHER_LOW)}
    cost = CostModel(tuple(ms), borders, families={LOW: FLOAT32, OTHER_LOW: OTHER})
    return SearchSpace(GRAPH, tuple(matches), cost, terms={Objective.ERROR: tuple(error2)})


@pytest.mark.parametrize(("other_ms", "first"), [(1.0, OTHER), (3.0, FLOAT32)])
def test_the_family_that_is_predicted_the_fastest_comes_first(other_ms: float, first: tuple[str, str]) -> None:
    engines = [FLOAT32, LOW, OTHER, OTHER_LOW]
    family, _ = next(mixtures_at(two_families(other_ms), engines, math.sqrt(7.5) / AS_PREDICTED[0]))
    assert family == first


def test_the_levels_of_a_family_that_errs_more_than_predicted_are_lower() -> None:
    engines, budget = [FLOAT32, LOW, OTHER, OTHER_LOW], math.sqrt(7.5) / AS_PREDICTED[0]
    found = list(mixtures_at(two_families(2.0), engines, budget, corrections={FLOAT32: Correction(2.0)}))
    first = {family: placement for family, placement in reversed(found)}
    errors = {family: predicted_error(two_families(2.0), placement) for family, placement in first.items()}
    assert errors[OTHER] == pytest.approx(math.sqrt(7.0))
    assert errors[FLOAT32] <= math.sqrt(7.5) / 2
