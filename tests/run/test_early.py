"""The first mixtures of precisions, before any cost is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

import pytest

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.expected import apportioned_ms, expected_space
from collage_evo.costs.matches import CostMeter
from collage_evo.fitness.jobs import Measured
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.read import build_graph
from collage_evo.patterns.match import Match, Placement
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import nodes_in, numerics_of
from collage_evo.run.stages import mixtures as early
from collage_evo.run.stages.likely_families import by_operators
from collage_evo.run.stages.mixtures import MIXTURES, EarlyMixtures, in_space, measure_early
from collage_evo.run.store import Store
from collage_evo.search.mixtures.correction import Correction, Erred
from collage_evo.search.mixtures.likely import FIRST, likeliest_mixtures, suffices, unsettled
from collage_evo.search.mixtures.measured import EarlyMixture, corrections_by
from tests.support.models import chain

GRAPH = build_graph(chain(4))
BUDGET = 0.02
FAMILY = ("openvino", "default")
OTHER = ("onnxruntime", "default")
BASELINE_MS = {FAMILY: 10.0}
BASELINES_MS = {FAMILY: 10.0, OTHER: 10.5}
TIMED = Outcome(5.0, 5.0, 5.0, 3)
UNKNOWN, FAR = Failure(Fault.BUILD, "no"), Failure(Fault.WRONG_NUMBERS, "far off", 0.04)


@pytest.mark.parametrize(
    ("variant", "arithmetic"),
    [("int8", Arithmetic.INT8), ("int8-weights", Arithmetic.INT8_WEIGHTS), ("bf16-cast", Arithmetic.BFLOAT16)],
)
def test_every_lower_precision_is_expected_to_be_faster(variant: str, arithmetic: Arithmetic) -> None:
    nodes = [node.index for node in GRAPH.nodes]
    heavy = [node.index for node in GRAPH.nodes if node.op_type == "Conv"]
    matches = [Match(1 << node, "openvino", "default") for node in nodes]
    lower = partial(Match, backend="openvino", variant=variant, base="default")
    matches += [lower(1 << node, edits=numerics_of((arithmetic, 1 << node))) for node in heavy]
    terms = {Objective.ERROR: (0.0,) * len(nodes) + (1e-6,) * len(heavy)}
    baseline_ms = {("openvino", "default"): 10.0}
    space = expected_space(GRAPH, Matches(tuple(matches), {}), terms, baseline_ms)
    (placement,) = likeliest_mixtures(space, baseline_ms, BUDGET, FIRST[:1])
    (region,) = placement.regions
    assert nodes_in(region.numerics, arithmetic) == sum(1 << node for node in heavy)


def test_int8_beside_bfloat16_that_was_measured_is_expected_to_be_faster_than_that() -> None:
    nodes = [node.index for node in GRAPH.nodes]
    matches = [Match(1 << node, "openvino", "default") for node in nodes]
    matches += [
        Match(1 << node, "openvino", variant, base="default", edits=numerics_of((arithmetic, 1 << node)))
        for variant, arithmetic in (("bf16-cast", Arithmetic.BFLOAT16), ("int8", Arithmetic.INT8))
        for node in nodes
    ]
    baseline_ms = {FAMILY: 10.0, ("openvino", "bf16-cast"): 2.0, OTHER: 1.0}
    space = expected_space(GRAPH, Matches(tuple(matches), {}), {}, baseline_ms)
    whole = [sum(space.cost.match_ms[k * len(nodes) : (k + 1) * len(nodes)]) for k in range(3)]
    assert whole == pytest.approx([10.0, 2.0, 1.5])


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


def measured(error: float | None, failure: Failure | None = None) -> list[EarlyMixture]:
    (mixture,) = likeliest_mixtures(mixed_space(), BASELINE_MS, 0.03, FIRST[:1])
    assert in_int8(mixture) == 4
    outcome = Outcome.unfit(failure) if failure else replace(TIMED, error=error)
    return [EarlyMixture(mixture, FAMILY, outcome)]


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


def test_mixtures_are_recorded_with_what_the_search_needs_of_them(tmp_path: Path) -> None:
    store, found = Store(tmp_path), EarlyMixtures("key", (*measured(0.06), *measured(None, FAR)))
    store.put(MIXTURES, EarlyMixtures, found)
    recorded = store.get(MIXTURES, EarlyMixtures)
    assert recorded == found
    assert in_space(recorded.mixtures, mixed_space()) == in_space(found.mixtures, mixed_space())


class Meter:
    """Times operators: in int8 an engine of ``shares`` takes so much of its float32's time."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.shares = shares
        self.timed: list[Match] = []

    def key(self, match: Match) -> str:
        return f"{GRAPH.nodes[match.nodes.bit_length() - 1].op_type} {match.engine}"

    def measure(self, matches: Sequence[Match], give_up_ms: object, on_done: object) -> dict[str, Measured | Failure]:
        self.timed += matches
        shares = {match: self.shares.get(match.backend, 0.0) if match.variant == "int8" else 1.0 for match in matches}
        return {self.key(match): Measured((share,), 0.0, 0.0) if share else FAR for match, share in shares.items()}


@pytest.mark.parametrize(
    ("shares", "likely"),
    [
        ({"openvino": 1.0, "onnxruntime": 0.5}, [OTHER]),
        ({"openvino": 0.5, "onnxruntime": 0.5}, [FAMILY, OTHER]),
        ({"openvino": 0.55, "onnxruntime": 0.5}, [OTHER, FAMILY]),
        ({"openvino": 0.5}, [FAMILY]),
        ({}, [FAMILY, OTHER]),
    ],
)
def test_the_likely_families_are_those_that_gain(shares: Mapping[str, float], likely: list[Engine]) -> None:
    space, meter = mixed_space(("openvino", "onnxruntime")), Meter(shares)
    assert list(by_operators(space, (FAMILY, OTHER), BASELINES_MS, cast(CostMeter, meter))) == likely
    assert {match.nodes.bit_count() for match in meter.timed} == {1}
    assert {GRAPH.nodes[match.nodes.bit_length() - 1].op_type for match in meter.timed} == {"Conv"}


def test_a_family_is_likely_by_another_precision_where_its_usual_one_was_not_timed() -> None:
    baseline_ms, meter = {("openvino", "int8"): 3.0, OTHER: 10.5}, Meter({"openvino": 0.5, "onnxruntime": 0.5})
    space = mixed_space(("openvino", "onnxruntime"))
    assert by_operators(space, (OTHER, FAMILY), baseline_ms, cast(CostMeter, meter)) == (FAMILY,)


class Judge:
    """An evaluator whose placements err by ``off`` times what is predicted, and take ``ms``."""

    def __init__(self, budget: float, off: float = 3.0, ms: float = 5.0) -> None:
        self.bounds, self.off, self.ms = {Objective.ERROR: budget}, off, ms
        self.measured: list[int] = []
        self.batches: list[list[tuple[int, Engine]]] = []

    def listen(self, on_measured: object) -> None:
        """Nothing is published."""

    def evaluate(self, placements: Mapping[Placement, Engine], until: float) -> list[Outcome | None]:
        counts = [in_int8(placement) for placement in placements]
        self.measured += counts
        self.batches.append([*zip(counts, placements.values(), strict=True)])
        return [replace(TIMED, latency_ms=self.ms, error=self.off * 0.01 * count**0.5) for count in counts]


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
    monkeypatch: pytest.MonkeyPatch, budget: float, off: float, ms: float, measured_counts: list[int]
) -> None:
    judge, run = Judge(budget, off, ms), MagicMock()
    run.limits.budget = budget
    monkeypatch.setattr(early, "measuring", lambda *_: nullcontext(judge))
    space = mixed_space()
    found = measure_early(run, space, (), BASELINE_MS, MagicMock())
    assert judge.measured == measured_counts
    assert [in_int8(mixture.placement) for mixture in found] == measured_counts


@pytest.mark.parametrize(
    ("off", "counts"),
    [(3.0, [[(4, FAMILY), (1, FAMILY)]]), (1.6, [[(4, FAMILY), (1, FAMILY)], [(2, FAMILY), (2, OTHER)]])],
)
def test_what_one_family_errs_corrects_what_is_measured_of_another(
    monkeypatch: pytest.MonkeyPatch, off: float, counts: list[list[tuple[int, Engine]]]
) -> None:
    judge, run = Judge(0.03, off), MagicMock()
    run.limits.budget = 0.03
    monkeypatch.setattr(early, "measuring", lambda *_: nullcontext(judge))
    monkeypatch.setattr(early, "likely_families", lambda run, space, families, baseline_ms: families)
    space = mixed_space(("openvino", "onnxruntime"))
    measure_early(run, space, (), BASELINES_MS, MagicMock())
    assert judge.batches == counts


def test_a_mixture_that_was_not_compiled_in_time_is_measured_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Judge):
        def evaluate(self, placements: Mapping[Placement, Engine], until: float) -> list[Outcome | None]:
            first = not self.measured
            outcomes = super().evaluate(placements, until)
            return [None] if first else outcomes

    judge, run = Late(0.1), MagicMock()
    run.limits.budget = 0.1
    monkeypatch.setattr(early, "measuring", lambda *_: nullcontext(judge))
    space = mixed_space()
    found = measure_early(run, space, (), BASELINE_MS, MagicMock())
    assert judge.measured == [4, 4]
    assert [in_int8(mixture.placement) for mixture in found] == [4]


@pytest.mark.parametrize(("best_ms", "known_ms"), [(5.1, 5.0), (5.0, 0.0)])
def test_latencies_of_mixtures_are_apportioned_where_these_may_be_the_answer(best_ms: float, known_ms: float) -> None:
    space, mixtures = mixed_space(), [*measured(0.01), *measured(None, UNKNOWN)]
    apportioned = apportioned_ms(mixtures, GRAPH, space.matches, best_ms)
    assert sum(apportioned.values()) == pytest.approx(known_ms)
    (region,) = mixtures[0].placement.regions
    assert set(apportioned) == (set(region.matches) if known_ms else set())


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
        EarlyMixture(mixture, family, replace(TIMED, error=error, latency_ms=ms))
        for family, (error, ms) in ((FAMILY, first), (OTHER, other))
    ]
    assert unsettled(found, (FAMILY, OTHER), BASELINE_MS, {Objective.ERROR: 0.02}) == families


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
