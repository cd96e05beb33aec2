"""The cheapest cover is measured, what cannot be part of it is estimated, under a meter that the test makes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from collage_evo.backends.base import YES
from collage_evo.backends.variants import Variant
from collage_evo.errors import NotSearchable
from collage_evo.fitness.costs.estimate import Estimate, Kernels, Whole
from collage_evo.fitness.costs.model import Border, Copies, CostModel
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir import Graph, members
from collage_evo.graph.read import build_graph
from collage_evo.graph.roofline import multiply_adds
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match
from collage_evo.run.survey import MORE_SECONDS, SAMPLE_SHARE, Survey
from tests.fitness.test_estimate import products
from tests.support.meters import Meter

NO = Failure(Fault.BUILD, "no")

GRAPH = products([4, *(width for width in range(8, 68, 2) for _ in range(2))])
SIZE = len(GRAPH.nodes)
SLOWNESS = {"quick": 1.0, "slow": 3.0, "narrow": 1.4}
MATCHES = [Match(1 << node, backend) for backend in SLOWNESS for node in range(SIZE)]


class Backend:
    alone = True

    def variant(self, name: str) -> Variant:
        return Variant(name)

    def runs_any_model(self, variant: Variant) -> bool:
        return True

    def supports(self, graph: object, nodes: int) -> object:
        return YES


def meter_of(broken: str = "") -> Meter:
    """Times are proportional to the arithmetic; ``narrow`` is quickest on small ones; joining saves nothing."""
    return Meter(GRAPH, lambda match: NO if match.backend == broken else true_ms(match))


def true_ms(match: Match) -> float:
    size = multiply_adds(GRAPH, match.nodes)
    slowness = 0.5 if match.backend == "narrow" and size < 8_000 else SLOWNESS[match.backend]
    return size * 1e-5 * slowness


def surveyed(meter: Any) -> tuple[Any, Any]:
    survey = Survey(meter, MATCHES, {name: Backend() for name in SLOWNESS}, {}, 4.0)  # type: ignore[misc]
    for stage in (survey.sample, survey.probe):
        stage(lambda _: None)
    space = survey.settle(lambda _: None)
    return survey.table(), space


def test_the_cheapest_cover_is_the_true_one_with_much_left_unmeasured() -> None:
    meter = meter_of()
    table, space = surveyed(meter)
    cover = cheapest_covers(space).covers[0].matches
    best = sum(min(true_ms(Match(1 << node, backend)) for backend in SLOWNESS) for node in range(SIZE))
    assert sum(true_ms(MATCHES[match]) for match in cover) <= 1.05 * best
    assert table.estimated == space.cost.estimated
    assert len(table.estimated) > SIZE / 2


def test_an_estimate_is_marked_as_one_and_a_measured_cost_is_as_measured() -> None:
    meter = meter_of()
    table, _ = surveyed(meter)
    for index, match in enumerate(MATCHES):
        assert (index in table.estimated) == (match not in meter.asked)
        if index not in table.estimated:
            assert table.standalone_ms[index] == true_ms(match)
        assert math.isfinite(table.standalone_ms[index])


def test_a_match_that_fails_has_its_reason_and_no_cost() -> None:
    table, space = surveyed(meter_of(broken="quick"))
    assert set(table.failures.values()) == {NO}
    for index in table.failures:
        assert MATCHES[index].backend == "quick"
        assert not space.cost.usable(index)
    cover = cheapest_covers(space).covers[0].matches
    assert not {MATCHES[match].backend for match in cover if match not in table.estimated} & {"quick"}


def test_where_all_matches_of_a_node_fail_the_reasons_are_told() -> None:
    meter = Meter(GRAPH, lambda match: NO if match.nodes == 1 else true_ms(match))
    with pytest.raises(NotSearchable, match=r"narrow: accepted, but failed \(build: no\); quick: accepted, but"):
        surveyed(meter)


def test_what_there_was_no_time_for_is_told_as_such() -> None:
    space = surveyed(meter_of())[1]
    untimed = CostModel((math.inf,) * len(MATCHES), {})
    with pytest.raises(NotSearchable, match=r"quick: accepted, but not timed: costs\.seconds was too short"):
        replace(space, cost=untimed)


def test_on_a_device_its_engines_are_measured_first_and_copies_are_among_the_costs() -> None:
    device, copies = ("slow", "default"), Copies(Border(0.1, 0.2), Border(0.3, 0.4))
    meter: Any = meter_of()
    backends: Any = {name: Backend() for name in SLOWNESS}
    survey = Survey(meter, MATCHES, backends, {}, 4.0, on_device=frozenset({device}), copies=copies)
    survey.sample(lambda _: None)
    first = {match.nodes: match.engine for match in reversed(meter.asked)}
    assert set(first.values()) == {device}
    survey.probe(lambda _: None)
    cost = survey.settle(lambda _: None).cost
    assert (cost.on_device, cost.copies) == ({device}, copies)


def test_the_same_answers_give_the_same_space() -> None:
    assert surveyed(meter_of())[1].cost == surveyed(meter_of())[1].cost


def test_what_is_rewritten_is_measured_not_estimated_but_on_engines_that_are_far_behind() -> None:
    both = 0b11 << (SIZE - 2)
    written = [Match(both, name, "default~r", base="default", rewrites=(("r", both),)) for name in SLOWNESS]
    meter: Any = Meter(GRAPH, lambda match: true_ms(match) / (4 if match.rewrites else 1))
    backends: Any = {name: Backend() for name in SLOWNESS}
    survey = Survey(meter, [*MATCHES, *written], backends, {}, 4.0)
    for stage in (survey.sample, survey.probe):
        stage(lambda _: None)
    space = survey.settle(lambda _: None)
    assert {match.backend for match in meter.asked if match.rewrites} == {"quick", "narrow"}
    quick, slow = len(MATCHES), len(MATCHES) + 1
    assert survey.table().standalone_ms[quick] == true_ms(written[0]) / 4
    assert not space.cost.usable(slow)
    assert quick in cheapest_covers(space).covers[0].matches
    assert ("quick", "default~r") not in space.cost.borders


BLOCKS = [sum(1 << node for node in range(first, min(first + 8, SIZE))) for first in range(0, SIZE, 8)]
ON_LANES = [Match(nodes, "lanes", way) for nodes in BLOCKS for way in ("good", "bad")]
HOPELESS = [Match(nodes, "lanes", "hopeless") for nodes in BLOCKS]


def lanes_meter(good: float, bad: float) -> Meter:
    """What is run on lanes takes so many times what the quickest takes operator by operator, or is given up."""
    factors = {"good": good, "bad": bad}

    def took(match: Match) -> float | Failure:
        if match.backend != "lanes":
            return true_ms(match)
        if match.variant == "hopeless":
            return Failure(Fault.FAR_BEHIND, "over 100 ms")
        return factors[match.variant] * sum(true_ms(Match(1 << node, "quick")) for node in members(match.nodes))

    return Meter(GRAPH, took)


def surveyed_with_lanes(meter: Meter, further: Sequence[Match] = ()) -> SearchSpace:
    class OnLanes(Backend):
        alone = False

    backends: Any = {name: Backend() for name in SLOWNESS} | {"lanes": OnLanes()}
    survey = Survey(meter, [*MATCHES, *ON_LANES, *further], backends, {}, 4.0)  # type: ignore[arg-type]
    for stage in (survey.sample, survey.probe):
        stage(lambda _: None)
    return survey.settle(lambda _: None)


def test_regions_on_lanes_are_measured_largest_first_once_it_is_known_what_they_replace() -> None:
    meter = lanes_meter(0.7, 0.8)
    space = surveyed_with_lanes(meter)
    asked = [match for match in meter.asked if match.backend == "lanes"]
    assert set(asked) == set(ON_LANES)
    assert meter.asked[-len(asked) :] == asked
    assert meter.extended_by == [MORE_SECONDS], "they have time of their own"
    work = [multiply_adds(GRAPH, match.nodes) for match in asked]
    assert work == sorted(work, reverse=True)
    cover = cheapest_covers(space).covers[0].matches
    assert {match.variant for match in map(space.matches.__getitem__, cover) if match.backend == "lanes"} == {"good"}


def test_a_way_of_cutting_that_lost_each_time_is_given_up() -> None:
    meter = lanes_meter(0.7, 3.0)
    surveyed_with_lanes(meter, HOPELESS)
    for way in ("bad", "hopeless"):
        assert len([match for match in meter.asked if match.variant == way]) < len(BLOCKS)
    assert len([match for match in meter.asked if match.variant == "good"]) == len(BLOCKS)


def test_a_way_of_cutting_whose_largest_region_is_far_behind_is_given_up_at_once() -> None:
    meter = lanes_meter(0.7, 3.0)
    surveyed_with_lanes(meter)
    assert len([match for match in meter.asked if match.variant == "bad"]) == 1
    near = lanes_meter(0.7, 1.2)
    surveyed_with_lanes(near)
    assert len([match for match in near.asked if match.variant == "bad"]) > 1


def test_estimates_add_up_to_no_less_than_the_whole_model_took_on_their_engine() -> None:
    """Large products take twenty times what small ones make one expect, and only small ones are measured."""
    large = {index for index, match in enumerate(MATCHES) if match.nodes.bit_length() > SIZE // 2}

    def bent_ms(index: int) -> float:
        return true_ms(MATCHES[index]) * (20.0 if index in large else 1.0)

    own = [index for index, match in enumerate(MATCHES) if match.backend == "slow"]
    true = sum(map(bent_ms, own))
    backends: Any = {name: Backend() for name in SLOWNESS}
    sums = {}
    for alone in ({}, {("slow", "default"): true}):
        meter: Any = Meter(GRAPH, lambda match: bent_ms(MATCHES.index(match)))
        survey = Survey(meter, MATCHES, backends, {}, 4.0, alone=alone)
        survey._costs.measure((index for index in own[:8:4]), lambda _: None)
        survey.probe(lambda _: None)
        table = survey.table()
        sums[bool(alone)] = sum(table.standalone_ms[index] for index in own)
    assert abs(math.log(sums[False] / true)) > 1.0
    assert abs(math.log(sums[True] / true)) < 0.5


def test_a_model_that_an_engine_ran_whole_is_not_said_to_take_more_there() -> None:
    """Unmeasured as a match, and however little is known of its kernels."""
    whole = Match(GRAPH.all_nodes, "slow")
    backends: Any = {name: Backend() for name in SLOWNESS}
    meter: Any = Meter(GRAPH, lambda match: 1000.0)
    survey = Survey(meter, [*MATCHES, whole], backends, {}, 4.0, alone={("slow", "default"): 30.0})
    survey._costs.measure([0, len(MATCHES) - 1], lambda _: None)
    survey.probe(lambda _: None)
    space = survey._expected()
    assert space.cost.match_ms[len(MATCHES)] <= 30.0
    assert len(MATCHES) in space.cost.estimated
    assert cheapest_covers(space).covers[0].matches == (len(MATCHES),)


def test_what_was_not_measured_counts_with_its_mean() -> None:
    """With the median a cover of lucky guesses would look cheap."""
    backends: Any = {name: Backend() for name in SLOWNESS}
    survey = Survey(meter_of(), MATCHES, backends, {}, 4.0)  # type: ignore[arg-type]
    measured = [0, 1, SIZE - 1]
    survey._costs.measure(measured, lambda _: None)
    survey.probe(lambda _: None)
    table, costs = survey.table(), survey._expected().cost.match_ms
    medians = Kernels(GRAPH, MATCHES).estimates({index: true_ms(MATCHES[index]) for index in measured})
    unsure = [index for index in table.estimated if medians[index].spread > 0.3]
    assert unsure
    at_median = survey._space(lambda estimate: estimate.ms).cost.match_ms
    assert all(table.standalone_ms[index] > 1.02 * medians[index].ms for index in unsure)
    assert all(costs[index] > 1.02 * at_median[index] for index in unsure)


WHOLES = [Match(GRAPH.all_nodes, name) for name in SLOWNESS]


def test_the_whole_model_is_not_measured_again_where_its_engine_ran_it() -> None:
    backends: Any = {name: Backend() for name in SLOWNESS}
    alone = {(name, "default"): 3 * true_ms(Match(GRAPH.all_nodes, name)) for name in ("quick", "narrow")}
    meter: Any = meter_of()
    survey = Survey(meter, [*MATCHES, *WHOLES], backends, {}, 4.0, alone=alone)
    for stage in (survey.sample, survey.probe):
        stage(lambda _: None)
    space = survey.settle(lambda _: None)
    assert [match.backend for match in meter.asked if match.nodes == GRAPH.all_nodes] == ["slow"]
    ran = [len(MATCHES) + list(SLOWNESS).index(name) for name in ("quick", "narrow")]
    assert set(ran) <= space.cost.estimated
    assert [survey.table().standalone_ms[index] for index in ran] == list(alone.values())


def test_what_an_engine_took_for_the_whole_model_bounds_what_is_looked_into() -> None:
    """A cover that the whole model on one engine beats is not measured, though no cover of matches was."""
    backends: Any = {name: Backend() for name in SLOWNESS}
    asked = {}
    for told in (False, True):
        meter: Any = meter_of()
        alone = {("quick", "default"): 1e-3} if told else {}
        survey = Survey(meter, [*MATCHES, *WHOLES[:1]], backends, {}, 4.0, alone=alone)
        survey._costs.measure([0, SIZE, 2 * SIZE], lambda _: None)
        survey.probe(lambda _: None)
        survey.settle(lambda _: None)
        asked[told] = len(meter.asked)
    assert asked[True] == 3 < asked[False]


def test_what_is_asked_for_several_times_is_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    fit = Kernels.estimates

    def counted(self: Kernels, measured: Mapping[int, float], wholes: Sequence[Whole] = ()) -> dict[int, Estimate]:
        fits.append(len(measured))
        return fit(self, measured, wholes)

    monkeypatch.setattr(Kernels, "estimates", counted)
    backends: Any = {name: Backend() for name in SLOWNESS}
    survey = Survey(meter_of(), MATCHES, backends, {}, 4.0)  # type: ignore[arg-type]
    for measured in ([0, SIZE - 1], [SIZE]):
        survey._costs.measure(measured, lambda _: None)
        survey.probe(lambda _: None)
        assert survey._expected().cost == survey._expected().cost
        survey.table()
    assert fits == [2, 3]


def test_a_sample_of_which_nothing_was_measured_in_its_time_has_more() -> None:
    class Slow(Meter):
        def measure(self, matches: Any, give_up_ms: object, on_done: object, share: float = 1.0, *more: Any) -> Any:
            return super().measure(matches, give_up_ms, on_done, share, *more) if share > SAMPLE_SHARE else {}

    backends: Any = {name: Backend() for name in SLOWNESS}
    survey = Survey(Slow(GRAPH, true_ms), MATCHES, backends, {}, 4.0)  # type: ignore[arg-type]
    survey.sample(lambda _: None)
    assert len(survey._costs.ms) >= 20


def test_a_large_table_comes_last_in_the_sample() -> None:
    """It takes long to compile and hardly any time to run."""
    graph = _looked_up()
    meter: Any = Meter(graph, lambda match: 1.0)
    backends: Any = {"quick": Backend()}
    matches = [Match(1 << node, "quick") for node in range(len(graph.nodes))]
    Survey(meter, matches, backends, {}, 4.0).sample(lambda _: None)
    kinds = [graph.nodes[match.nodes.bit_length() - 1].op_type for match in meter.asked]
    assert kinds == ["MatMul", "Relu", "Gather"]


def _looked_up() -> Graph:
    """Rows of a table of two megabytes, and a product of them."""
    build = Builder("rows")
    rows = build.input("rows", (4,), TensorProto.INT64)
    taken = build.op("Gather", build.const(np.zeros((2**13, 64), np.float32)), rows)
    product = build.op("MatMul", taken, build.const(np.ones((64, 8), np.float32)))
    return build_graph(build.model(build.op("Relu", product)))
