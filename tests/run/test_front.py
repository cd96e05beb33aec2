"""The points of latency against error: which keep the budget, which nothing beats, and why one is not the answer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline, feasible_baselines
from collage_evo.answer.candidates import Tried
from collage_evo.answer.race import Race
from collage_evo.genome.cost_model import CostModel
from collage_evo.genome.encoding import encode, place
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match, Placement
from collage_evo.report.result import FrontPoint
from collage_evo.report.words import in_words
from collage_evo.run.front import UNRACED, Raced, front_points, marked
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.state import Evaluated
from tests.support.measured import EXACT, LIMIT, LOW, two_nodes
from tests.support.spaces import make_graph


def point(ms: float, error: float | None, exact: bool = False) -> FrontPoint:
    return FrontPoint(ms, error, "", "", ("float32",) if exact else ("bfloat16",))


def optimal(*points: FrontPoint) -> list[float]:
    """Latencies of the points that nothing beats."""
    return [point.latency_ms for point in marked(points) if point.pareto]


def test_a_point_is_on_the_front_if_nothing_is_faster_at_as_small_an_error() -> None:
    exact = point(10, 1e-6, exact=True)
    assert optimal(exact, point(8, 1e-3), point(9, 2e-3), point(5, 1e-2), point(5, 2e-2)) == [10, 8, 5]
    assert optimal(point(10, None), point(20, 1e-2)) == [20]


def test_rounding_in_float32_is_no_reason_to_prefer_a_placement() -> None:
    assert optimal(point(10, 1e-7, exact=True), point(9, 2e-6, exact=True), point(11, 1e-6)) == [9]


def test_only_float32_is_exact_whatever_the_errors_are() -> None:
    exact = Limits(1e-3)
    assert exact.allows(1e-3, exact=True)
    assert not exact.allows(0.0, exact=False)
    assert LIMIT.allows(0.01, exact=False)
    assert not LIMIT.allows(0.011, exact=False)
    assert not LIMIT.allows(None, exact=False)
    assert not LIMIT.allows(0.011, exact=True)
    assert Limits(1e-3, math.inf).allows(None, exact=False), "where the model itself gives random numbers"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed:dp", "the fastest by the measured times of its regions"),
        ("seed:single:openvino/default", "as many operators as possible in openvino"),
        ("seed:greedy:tvm,ncnn", "each operator in the first library that takes it, of tvm, ncnn"),
        ("rewritten:ncnn", "operators written in another way that computes the same, in ncnn"),
        ("crossover", "two fast ones combined"),
    ],
)
def test_where_a_placement_comes_from_is_told_in_words(text: str, told: str) -> None:
    assert in_words(Origin.parse(text)) == told


def baseline(variant: str, ms: float | None, error: float) -> Baseline:
    name = "openvino" if variant == EXACT else f"openvino/{variant}"
    outcome = Outcome(ms, error=error) if ms else Outcome.unfit(Failure(Fault.BUILD, "cannot"))
    return Baseline(name, "openvino", variant, Path(name), outcome, exact=variant == EXACT)


def test_backends_alone_race_if_they_keep_the_budget_and_float32_where_none_does() -> None:
    all_three = (baseline(EXACT, 20.0, 1e-6), baseline(LOW, 10.0, 4e-3), baseline("int8", None, 0.0))

    def kept(limit: Limits) -> list[str]:
        return [found.name for found in feasible_baselines(all_three, limit)]

    assert kept(LIMIT) == ["openvino", "openvino/bf16"]
    bounded = {Objective.ERROR: 1e-5}  # as another objective would be
    assert [found.name for found in feasible_baselines(all_three, LIMIT, bounded)] == ["openvino"]
    assert [found.name for found in feasible_baselines(all_three, LIMIT, {Objective.ERROR: 0.0})] == ["openvino"]
    assert kept(Limits(1e-3, 1e-3)) == kept(Limits(1e-3)) == kept(Limits(1e-3, 1e-9)) == ["openvino"]


def raced(placements: dict[str, Placement], answer: str, times_ms: dict[str, float]) -> Raced:
    """A final of ``placement-0``, which is ``last``, and single backends that took ``times_ms``."""
    race = Race({name: (((ms,),),) for name, ms in times_ms.items()}, {})
    verdict = Verdict(answer, "openvino", ITSELF, "placement-0", ITSELF, race)
    keys = {"placement-0": placements["last"].key}
    return Raced(verdict, keys)


def test_points_have_race_times_where_there_are_any_and_faster_ones_say_why_they_are_not_the_answer() -> None:
    tried, placements = two_nodes()
    final = raced(placements, "placement-0", {"openvino": 21.0, "placement-0": 16.0})
    found = front_points(tried, (baseline(EXACT, 20.5, 1e-6),), final, LIMIT)
    by_key = {point.key: point for point in found}
    answer, first, low = (by_key[placements[name].key] for name in ("last", "first", "low"))
    assert [point for point in found if point.answer] == [answer]
    assert (answer.latency_ms, answer.raced, answer.remark) == (16.0, True, "")
    assert answer.how == "a variation of a fast one, bfloat16 and float32"
    assert (first.latency_ms, first.raced, first.feasible, first.remark) == (14.0, False, True, UNRACED)
    assert (low.feasible, low.remark, low.single) == (False, "", ""), "only the user's own file is a baseline"
    alone = by_key[""]
    assert (alone.single, alone.latency_ms, alone.how) == ("openvino", 21.0, "openvino alone, float32")


def test_a_candidate_that_lost_the_final_says_so_where_its_time_seems_shorter() -> None:
    tried, placements = two_nodes()
    final = raced(placements, "openvino", {"openvino": 16.1, "placement-0": 16.0})
    found = front_points(tried, (baseline(EXACT, 20.5, 1e-6),), final, LIMIT)
    (answer,) = [point for point in found if point.answer]
    assert answer.single == "openvino"
    (lost,) = [point for point in found if point.key == placements["last"].key]
    assert lost.remark == "in the thorough comparison it was not faster for certain than every baseline"


def test_a_baseline_that_was_faster_and_is_not_proved_so_says_it() -> None:
    race = Race({"openvino": (((16.1,),),), "openvino/bf16": (((15.0,),),)}, {})
    final = Raced(Verdict("openvino", "openvino", ITSELF, "openvino", ITSELF, race))
    found = front_points(None, (baseline(EXACT, 20.0, 1e-6), baseline(LOW, 19.0, 5e-3)), final, LIMIT)
    (faster,) = [point for point in found if not point.answer]
    assert faster.remark == "in the thorough comparison it was not faster for certain than the answer"


def test_a_placement_in_the_words_of_a_baseline_is_told_from_it() -> None:
    space = SearchSpace(make_graph([()]), (Match(1, "openvino", EXACT),), CostModel((1.0,), {}))
    whole = place((0,), space)
    origin = Origin(Way.DYNAMIC_PROGRAM, seeded=True)
    tried = Tried(space, {whole.key: Evaluated(encode(whole, space), Outcome(14.0, error=0.0), origin, 1, 1, 1.0)})
    race = Race({"openvino": (((16.1,),),)}, {})
    final = Raced(Verdict("openvino", "openvino", ITSELF, "openvino", ITSELF, race))
    found = front_points(tried, (baseline(EXACT, 20.5, 1e-6),), final, LIMIT)
    whats = {point.key: point.what for point in found}
    assert whats == {"": "OpenVINO in float32", whole.key: "OpenVINO in float32 on the simplified graph"}


def test_without_a_search_each_backend_alone_is_a_point() -> None:
    final = Raced(Verdict("openvino", "openvino", ITSELF, "openvino", ITSELF, Race({"openvino": (((5.0,),),)}, {})))
    (found,) = front_points(None, (baseline(EXACT, 20.0, 1e-6),), final, LIMIT)
    assert (found.answer, found.pareto, found.latency_ms) == (True, True, 5.0)
