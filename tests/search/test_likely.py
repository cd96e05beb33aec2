"""Likely mixtures: which are measured before the costs and for another budget, and what corrects them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.expected import expected_space
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Match, Placement
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import nodes_in, numerics_of
from collage_evo.search.mixtures.correction import Correction, Erred
from collage_evo.search.mixtures.families import likely_families
from collage_evo.search.mixtures.knapsack import mixtures_at, predicted_error
from collage_evo.search.mixtures.levels import FIRST
from collage_evo.search.mixtures.likely import (
    likeliest_mixtures,
    measure_in_batches,
    mixtures_for_budget,
    suffices,
    throughout,
    unsettled,
)
from collage_evo.search.mixtures.measured import Mixture, corrections_by
from tests.search.test_knapsack import FLOAT32, LOW, space
from tests.support.models import chain

GRAPH = build_graph(chain(4))
BUDGET = 0.02
BOTH = ("openvino", "onnxruntime")
FAMILY = ("openvino", "default")
OTHER = ("onnxruntime", "default")
BASELINE_MS = {FAMILY: 10.0}
BASELINES_MS = {FAMILY: 10.0, OTHER: 10.5}
TIMED = Outcome(5.0, 5.0, 5.0, 3)
UNKNOWN, FAR = Failure(Fault.BUILD, "no"), Failure(Fault.WRONG_NUMBERS, "far off", 0.04)


def mixed_space(backends: Sequence[str] = ("openvino",)) -> SearchSpace:
    """Each convolution in float32 or in int8, which adds 0.01 to the error."""
    heavy = [node.index for node in GRAPH.nodes if node.op_type == "Conv"]
    matches, error2 = list[Match](), list[float]()
    for backend in backends:
        matches += [Match(1 << node.index, backend, "default") for node in GRAPH.nodes]
        for node in heavy:
            edits = numerics_of((Arithmetic.INT8, 1 << node))
            matches.append(Match(1 << node, backend, "int8", base="default", edits=edits))
        error2 += [0.0] * len(GRAPH.nodes) + [1e-4] * len(heavy)
    return expected_space(GRAPH, Matches(tuple(matches), {}), {Objective.ERROR: tuple(error2)}, BASELINES_MS)


def in_int8(placement: Placement) -> int:
    return sum(nodes_in(region.numerics, Arithmetic.INT8).bit_count() for region in placement.regions)


def measured(error: float | None, failure: Failure | None = None) -> list[Mixture]:
    (mixture,) = likeliest_mixtures(mixed_space(), BASELINE_MS, 0.03, FIRST[:1])
    assert in_int8(mixture) == 4
    return [Mixture(mixture, FAMILY, Outcome.unfit(failure) if failure else replace(TIMED, error=error))]


@pytest.mark.parametrize(
    ("error", "failure", "off"),
    [
        *((0.06, None, 3.0), (0.01, None, 0.5), (9.0, None, 4.0), (0.0, None, None)),
        *((None, UNKNOWN, None), (None, FAR, 2.0)),
    ],
)
def test_what_was_measured_corrects_what_is_predicted(
    error: float | None, failure: Failure | None, off: float | None
) -> None:
    found = corrections_by(measured(error, failure), mixed_space(), 0.03).get(FAMILY)
    assert (found is None) == (off is None)
    if found is not None:
        assert found.measured(0.02) == pytest.approx(0.02 * off)


def test_two_mixtures_give_the_power_to_which_errors_grow() -> None:
    found = Correction.of([Erred(0.014, 0.035), Erred(0.0056, 0.0092)], 0.02)
    assert found.measured(0.014) == pytest.approx(0.035)
    assert found.measured(0.0056) == pytest.approx(0.0092)
    assert 0.0056 < found.predicted(0.014) < 0.0085
    assert Correction.of([Erred(0.01, 0.02), Erred(0.01, 0.03)], 0.03) == Correction(pytest.approx(3.0), 1.0)


def test_beyond_what_was_measured_errors_grow_at_least_as_predicted() -> None:
    mixtures = [Erred(0.014, 0.0134), Erred(0.007, 0.0089)]
    below, above = Correction.of(mixtures, 0.01), Correction.of(mixtures, 0.02)
    assert below.measured(0.007) == pytest.approx(0.0089)
    assert below.measured(0.014) == pytest.approx(0.0134)
    assert above.measured(0.014) == pytest.approx(0.0134)
    assert above.predicted(0.0184) == pytest.approx(0.014 * 0.0184 / 0.0134)


@pytest.mark.parametrize(("off", "count"), [(1.0, 4), (2.0, 1), (4.0, 0)])
def test_a_corrected_mixture_has_fewer_operators_in_lower_precision(off: float, count: int) -> None:
    found = likeliest_mixtures(mixed_space(), BASELINE_MS, 0.03, FIRST[:1], {FAMILY: Correction(off)})
    assert [in_int8(placement) for placement in found] == ([count] if count else [])


@pytest.mark.parametrize(("throughout_ms", "pays"), [(4.5, True), (5.0, False)])
def test_int8_in_heavy_operators_only_and_throughout_are_measured_and_the_faster_kind_goes_on(
    throughout_ms: float, pays: bool
) -> None:
    plain, wide = mixed_space(), ("openvino", "int8-all")
    between = [1 << node.index for node in GRAPH.nodes if node.op_type != "Conv"]
    matches = [Match(node, *wide, base="default", edits=numerics_of((Arithmetic.INT8, node))) for node in between]
    edits = numerics_of((Arithmetic.INT8, GRAPH.all_nodes))
    matches.append(Match(GRAPH.all_nodes, *wide, base="default", edits=edits))
    terms = {Objective.ERROR: (*plain.terms[Objective.ERROR], *[1e-6] * len(between), 1.0)}
    both = expected_space(GRAPH, Matches((*plain.matches, *matches), {}), terms, BASELINES_MS)

    def with_wide(placements: Iterable[Placement]) -> list[bool]:
        matches = ([both.matches[m] for region in one.regions for m in region.matches] for one in placements)
        return [any(match.engine == wide for match in of_one) for of_one in matches]

    first = likeliest_mixtures(both, BASELINE_MS, 0.03, FIRST[:1])
    assert with_wide(first) == [False, True]
    outcomes = (replace(TIMED, latency_ms=ms) for ms in (5.0, throughout_ms))
    found = [Mixture(one, FAMILY, outcome) for one, outcome in zip(first, outcomes, strict=True)]
    assert throughout(both, both.engines, found) == (({wide}, set()) if pays else (set(), {wide}))
    assert throughout(both, both.engines, found[:1]) == (set(), set())
    assert with_wide(likeliest_mixtures(both, BASELINE_MS, 0.02, FIRST[:1], measured=found)) == [pays]


def likely(
    space: SearchSpace, families: Sequence[Engine], baseline_ms: Mapping[Engine, float], shares: Mapping[str, float]
) -> tuple[tuple[Engine, ...], set[str]]:
    """Likely families where in int8 a backend takes so much of its float32's time, or fails; and what was timed."""
    timed = set[str]()

    def key(match: Match) -> str:
        return f"{GRAPH.nodes[match.nodes.bit_length() - 1].op_type} {match.engine}"

    def time_ms(matches: Sequence[Match]) -> dict[str, float]:
        timed.update(GRAPH.nodes[match.nodes.bit_length() - 1].op_type for match in matches)
        ms = {match: shares.get(match.backend, math.inf) if match.variant == "int8" else 1.0 for match in matches}
        return {key(match): match_ms for match, match_ms in ms.items()}

    return likely_families(space, families, baseline_ms, key, guessed_ms(GRAPH), time_ms), timed


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ({"openvino": 1.0, "onnxruntime": 0.5}, (OTHER,)),
        ({"openvino": 0.5, "onnxruntime": 0.5}, (FAMILY, OTHER)),
        ({"openvino": 0.55, "onnxruntime": 0.5}, (OTHER, FAMILY)),
        ({"openvino": 0.5}, (FAMILY,)),
        ({}, (FAMILY, OTHER)),
    ],
)
def test_the_likely_families_are_those_that_gain(shares: Mapping[str, float], found: tuple[Engine, ...]) -> None:
    assert likely(mixed_space(BOTH), (FAMILY, OTHER), BASELINES_MS, shares) == (found, {"Conv"})


@pytest.mark.parametrize(
    ("shares", "timed"), [((30.0, 15.0, 9.0, 25.0, *[3.0] * 4), [1, 1, 8, 8]), ((60.0, *[5.0] * 7), [1, 1])]
)
def test_of_an_engine_the_kinds_of_operators_are_timed_that_take_the_most(
    shares: tuple[float, ...], timed: list[int]
) -> None:
    engines, nodes = (FAMILY, ("openvino", "int8")), range(len(GRAPH.nodes))
    matches = tuple(Match(1 << node, *engine, base="default") for engine in engines for node in nodes)
    space, asked = expected_space(GRAPH, Matches(matches, {}), {}, BASELINE_MS), list[Match]()

    def time_ms(matches: Sequence[Match]) -> dict[str, float]:
        asked.extend(matches)
        return {}

    likely_families(space, (FAMILY,), BASELINE_MS, lambda match: f"{match.nodes} {match.variant}", shares, time_ms)
    assert [match.nodes for match in asked] == timed


def test_a_family_is_likely_by_another_precision_where_its_usual_one_was_not_timed() -> None:
    baseline_ms, shares = {("openvino", "int8"): 3.0, OTHER: 10.5}, {"openvino": 0.5, "onnxruntime": 0.5}
    assert likely(mixed_space(BOTH), (OTHER, FAMILY), baseline_ms, shares)[0] == (FAMILY,)


class Judge:
    """An evaluator whose placements err by ``off`` times what is predicted, and take ``ms``."""

    def __init__(self, off: float = 3.0, ms: float = 5.0) -> None:
        self.off, self.ms = off, ms
        self.batches: list[list[tuple[int, Engine]]] = []

    def evaluate(self, placements: Iterable[Placement], until: float) -> list[Outcome | None]:
        batch = [(in_int8(placement), placement.regions[0].family) for placement in placements]
        self.batches.append(batch)
        return [replace(TIMED, latency_ms=self.ms, error=self.off * 0.01 * count**0.5) for count, _ in batch]


def measured_by(judge: Judge, budget: float, backends: Sequence[str] = BOTH[:1]) -> list[int]:
    """Operators in int8 of the mixtures that are measured of ``backends``."""
    space, baseline_ms = mixed_space(backends), BASELINES_MS if len(backends) > 1 else BASELINE_MS
    found = likeliest_mixtures(space, baseline_ms, budget, FIRST)
    first = {mixture: family for mixture, family in found.items() if family == FAMILY}
    families, bounds = tuple(dict.fromkeys(found.values())), {Objective.ERROR: budget}
    mixtures = measure_in_batches(judge, space, first, families, baseline_ms, budget, bounds, lambda: 0.0)
    return [in_int8(mixture.placement) for mixture in mixtures]


@pytest.mark.parametrize(
    ("budget", "off", "ms", "measured_counts"),
    [
        (0.03, 2.0, 5.0, [4, 1]),
        (0.06, 2.2, 5.0, [4]),
        (0.026, 1.2, 5.0, [4, 1]),
        (0.021, 1.3, 5.0, [3, 2]),
        (0.03, 2.0, 9.9, [4, 1]),
        (0.02, 0.5, 5.0, [2, 4]),
    ],
    ids=["the second is within the budget", "one level", "both are", "neither is", "no gain", "far within it"],
)
def test_another_mixture_is_measured_where_the_first_do_not_settle_it(
    budget: float, off: float, ms: float, measured_counts: list[int]
) -> None:
    judge = Judge(off, ms)
    assert measured_by(judge, budget) == measured_counts
    assert [count for batch in judge.batches for count, _ in batch] == measured_counts


@pytest.mark.parametrize(
    ("off", "counts"),
    [(3.0, [[(4, FAMILY), (1, FAMILY)]]), (1.6, [[(4, FAMILY), (1, FAMILY)], [(2, FAMILY), (2, OTHER)]])],
)
def test_what_one_family_errs_corrects_what_is_measured_of_another(
    off: float, counts: list[list[tuple[int, Engine]]]
) -> None:
    judge = Judge(off)
    measured_by(judge, 0.03, BOTH)
    assert judge.batches == counts


def test_a_mixture_that_was_not_compiled_in_time_is_measured_with_the_next() -> None:
    class Late(Judge):
        def evaluate(self, placements: Iterable[Placement], until: float) -> list[Outcome | None]:
            outcomes = super().evaluate(placements, until)
            return [None] if len(self.batches) == 1 else outcomes

    judge = Late()
    assert measured_by(judge, 0.1) == [4]
    assert judge.batches == [[(4, FAMILY)]] * 2


GOOD, EXACTER, OVER = (0.019, 8.0), (0.008, 9.0), (0.035, 6.0)


@pytest.mark.parametrize(
    ("first", "other", "families"),
    [
        (GOOD, OVER, {OTHER}),
        (GOOD, (0.035, 8.5), set()),
        (GOOD, (0.008, 8.5), {OTHER}),
        (GOOD, (0.008, 10.5), set()),
        ((0.002, 9.9), (0.035, 9.9), {FAMILY}),
        (OVER, (0.035, 7.0), {FAMILY, OTHER}),
        (OVER, (0.035, 8.0), {FAMILY}),
        (EXACTER, (0.035, 9.6), {FAMILY}),
        (EXACTER, (0.05, None), {FAMILY, OTHER}),
        (EXACTER, (None, None), {FAMILY}),
        ((0.035, 9.6), (0.035, 9.7), set()),
    ],
)
def test_another_mixture_is_measured_of_families_that_may_win(
    first: tuple[float, float], other: tuple[float | None, float | None], families: set[Engine]
) -> None:
    (mixture,) = likeliest_mixtures(mixed_space(), BASELINE_MS, 0.03, FIRST[:1])
    found = [
        Mixture(mixture, family, replace(TIMED, error=error, latency_ms=ms))
        for family, (error, ms) in ((FAMILY, first), (OTHER, other))
    ]
    assert unsettled(found, (FAMILY, OTHER), BASELINE_MS, {Objective.ERROR: 0.02}) == families


def test_a_mixture_is_not_tried_if_it_hardly_gains_on_its_own_family_whatever_another_takes() -> None:
    assert FAMILY in likeliest_mixtures(mixed_space(BOTH), {FAMILY: 10.0, OTHER: 7.0}, 0.03, FIRST[:1]).values()


@pytest.mark.parametrize(
    ("error", "ms", "enough"),
    [
        (0.019, 8.0, True), (0.015, 8.0, False), (0.021, 8.0, False), (0.019, 9.8, False), (0.019, None, False),
        (None, 8.0, False),
    ],
)  # fmt: skip
def test_a_mixture_suffices_that_is_faster_than_all_libraries_and_uses_most_of_the_budget(
    error: float | None, ms: float | None, enough: bool
) -> None:
    found = [replace(mixture, outcome=replace(TIMED, error=error, latency_ms=ms)) for mixture in measured(0.01)]
    assert suffices(found, BASELINE_MS, {Objective.ERROR: 0.02}) == enough


SECOND, LAST = 0b1100, 0b11000000
"""Convolutions with the Relu behind each, whose squared errors in bfloat16 are 1 and 2."""


def of_family(placement: Placement, off: float) -> Mixture:
    """As predicted, but for an error of ``off`` times that."""
    outcome = replace(TIMED, latency_ms=space().predict(placement), error=off * predicted_error(space(), placement))
    return Mixture(placement, FLOAT32, outcome)


def engines(off: float) -> list[Mixture]:
    """Everything in float32 and everything in bfloat16."""
    return [of_family(engine_placement(space(), engine), off) for engine in (FLOAT32, LOW)]


def low(mixtures: Iterable[Placement]) -> list[int]:
    return [nodes_in(placement.regions[0].numerics, Arithmetic.BFLOAT16) for placement in mixtures]


def test_for_another_budget_mixtures_aim_as_much_lower_as_errors_were_larger() -> None:
    found = mixtures_for_budget(space(), [], engines(2.0), {}, 4.0)
    assert low(found) == [SECOND | LAST, SECOND], "of 4 they may have 1.9 and 1.7 as predicted: squared 3 and 1"
    tried = [of_family(placement, 2.0) for placement in found]
    assert not mixtures_for_budget(space(), tried, engines(2.0), {}, 4.0), "they were measured"


def test_mixtures_correct_the_next_rather_than_other_placements() -> None:
    ((_, mixture),) = mixtures_at(space(), [FLOAT32, LOW], 1.2, (0.95,))
    found = mixtures_for_budget(space(), [of_family(mixture, 2.0)], engines(1.0), {}, 3.9)
    assert low(found) == [SECOND | LAST], "all in bfloat16 errs as predicted, the mixture twice as much"


def test_none_is_measured_that_is_predicted_to_be_much_slower_than_what_keeps_the_budget() -> None:
    all_low = of_family(engine_placement(space(), LOW), 1.0)
    slow, fast = (replace(all_low, outcome=replace(all_low.outcome, latency_ms=ms)) for ms in (8.0, 4.0))
    assert [low(mixtures_for_budget(space(), [], [one], {}, 4.2)) for one in (slow, fast)] == [[0b11111100], []]
