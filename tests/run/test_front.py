"""The points of latency against error: scales, which keep the budget, which nothing beats, why one is no answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
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
from collage_evo.genome.outcome import Bounds, Objective, Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match
from collage_evo.report.result import FrontPoint
from collage_evo.run.front import CHANGED, UNRACED, Raced, Scales, front_points, marked
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.state import Evaluated
from tests.support.measured import EXACT, LIMIT, LOW, two_nodes
from tests.support.spaces import make_graph

TRIED, PLACEMENTS = two_nodes()
KEYS = {name: placement.key for name, placement in PLACEMENTS.items()}


def baseline(variant: str, ms: float | None, error: float = 1e-6) -> Baseline:
    name = "openvino" if variant == EXACT else f"openvino/{variant}"
    outcome = Outcome(ms, error=error) if ms else Outcome.unfit(Failure(Fault.BUILD, "cannot"))
    return Baseline(name, "openvino", variant, Path(name), outcome, exact=variant == EXACT)


BASELINES = (baseline(EXACT, 20.0), baseline(LOW, 10.0))


def raced(answer: str, times_ms: Mapping[str, float], **failed: Failure) -> Raced:
    """A final of ``placement-0``, which is ``last``, and single backends that took ``times_ms``."""
    race = Race({name: (((ms,),),) for name, ms in times_ms.items()}, failed)
    return Raced(Verdict(answer, "openvino", ITSELF, "placement-0", ITSELF, race), {"placement-0": KEYS["last"]})


def test_a_point_is_on_the_front_if_nothing_is_faster_at_as_small_an_error() -> None:
    def optimal(*points: tuple[float, float | None]) -> list[float]:
        """Latencies of the points that nothing beats; those with an error below 1e-5 are in float32."""
        made = [FrontPoint(ms, e, "", "", ("float32",) if e and e < 1e-5 else ("bfloat16",)) for ms, e in points]
        return [point.latency_ms for point in marked(made) if point.pareto]

    assert optimal((10, 1e-6), (8, 1e-3), (9, 2e-3), (5, 1e-2), (5, 2e-2)) == [10, 8, 5]
    assert optimal((10, None), (20, 1e-2)) == [20]
    assert optimal((10, 1e-7), (9, 2e-6), (11, 1e-6)) == [9], "rounding is no reason to prefer a placement"


@pytest.mark.parametrize(
    ("limits", "error", "exact", "allowed"),
    [
        (Limits(1e-3), 1e-3, True, True),
        (Limits(1e-3), 0.0, False, False),
        (LIMIT, 0.01, False, True),
        (LIMIT, 0.011, False, False),
        (LIMIT, None, False, False),
        (LIMIT, 0.011, True, False),
        (Limits(1e-3, math.inf), None, False, True),
    ],
)
def test_only_float32_is_exact_whatever_the_errors_are(
    limits: Limits, error: float | None, exact: bool, allowed: bool
) -> None:
    assert limits.allows(error, exact) is allowed


@pytest.mark.parametrize(
    ("limits", "further", "names"),
    [
        (LIMIT, {}, ["openvino", "openvino/bf16"]),
        (LIMIT, {Objective.ERROR: 1e-5}, ["openvino"]),
        (LIMIT, {Objective.ERROR: 0.0}, ["openvino"]),
        (Limits(1e-3, 1e-3), {}, ["openvino"]),
        (Limits(1e-3), {}, ["openvino"]),
        (Limits(1e-3, 1e-9), {}, ["openvino"]),
    ],
)
def test_baselines_race_if_they_keep_the_budget_and_float32_if_none_does(
    limits: Limits, further: Bounds, names: list[str]
) -> None:
    all_three = (baseline(EXACT, 20.0), baseline(LOW, 10.0, 4e-3), baseline("int8", None))
    assert [found.name for found in feasible_baselines(all_three, limits, further)] == names


def test_points_have_race_times_and_others_are_scaled_to_it() -> None:
    final = raced("placement-0", {"openvino": 22.0, "placement-0": 30.0})
    scales = Scales.of(TRIED, BASELINES, final)
    assert (scales.search, scales.baselines) == (2.0, pytest.approx(1.1))
    by_key = {point.key or point.single: point for point in front_points(TRIED, BASELINES, final, LIMIT, scales)}
    expected = {KEYS["last"]: 30.0, KEYS["first"]: 28.0, KEYS["exact"]: 40.0, KEYS["low"]: 18.0}
    expected |= {"openvino": 22.0, "openvino/bf16": 11.0}
    assert {key: point.latency_ms for key, point in by_key.items()} == pytest.approx(expected)
    answer, low, alone = by_key[KEYS["last"]], by_key[KEYS["low"]], by_key["openvino"]
    assert [point for point in by_key.values() if point.answer] == [answer]
    assert (answer.raced, answer.remark) == (True, "")
    assert answer.how == "a variation of a fast one, bfloat16 and float32"
    assert (low.feasible, low.remark, low.single) == (False, "", ""), "only the user's own file is a baseline"
    assert (alone.raced, alone.how) == (True, "openvino alone, float32")


def test_percentiles_are_of_the_same_runs_as_the_median_and_on_its_scale() -> None:
    tried, last = two_nodes()[0], {"openvino": (18.0, 20.0, 23.0), "placement-0": (29.0, 30.0, 32.0)}
    key, evaluated = KEYS["first"], dict(tried.evaluated)
    outcome = replace(evaluated[key].outcome, p10_ms=13.0, p90_ms=16.0)
    evaluated[key] = replace(evaluated[key], outcome=outcome)
    race = Race({name: ((times,),) for name, times in last.items()}, {})
    verdict = Verdict("placement-0", "openvino", ITSELF, "placement-0", ITSELF, race)
    final = Raced(verdict, {"placement-0": KEYS["last"]})
    found = front_points(replace(tried, evaluated=evaluated), BASELINES, final, LIMIT, Scales(1.1, 2.0))
    ends = {point.key or point.single: (point.p10_ms, point.p90_ms) for point in found}
    assert ends[key] == pytest.approx((26.0, 32.0))
    assert ends[KEYS["last"]] == pytest.approx((29.2, 31.6))
    assert ends["openvino"] == pytest.approx((18.4, 22.4))
    assert ends["openvino/bf16"] == (None, None)


def test_without_a_placement_in_the_race_the_libraries_give_the_scale() -> None:
    only = raced("openvino", {"openvino": 24.0})
    assert Scales.of(TRIED, BASELINES, only).search == Scales.of(None, BASELINES, only).search == pytest.approx(1.2)
    assert Scales.of(None, (), only) == Scales()


@pytest.mark.parametrize(
    ("last_ms", "library_ms", "note"),
    [
        (15.0 * CHANGED, 20.0 / CHANGED, ""),
        (21.0, 20.0, "the answer took 1.40 times as long in the final comparison as in the search"),
        (21.0, 10.0, "OpenVINO in float32 took 0.500 times as long in the final comparison as at first"),
    ],
)
def test_a_machine_that_changed_is_named_with_the_thing_that_shows_it(
    last_ms: float, library_ms: float, note: str
) -> None:
    final = raced("placement-0", {"openvino": library_ms, "placement-0": last_ms})
    start = "the machine changed during the run: " if note else ""
    assert Scales.of(TRIED, BASELINES, final).changed == start + note


LOST = "in the thorough comparison it was not faster for certain than"


@pytest.mark.parametrize(
    ("final", "name", "remark"),
    [
        (raced("openvino", {"openvino": 16.1}), "first", UNRACED),
        (raced("openvino", {"openvino": 16.1, "placement-0": 16.0}), "last", f"{LOST} every baseline"),
        (raced("openvino", {"openvino": 16.1, "openvino/bf16": 15.0}), "openvino/bf16", f"{LOST} the answer"),
        (raced("openvino", {"openvino": 16.1}, **{"openvino/bf16": Failure(Fault.CRASH, "signal 9")}),
         "openvino/bf16", "it failed in the thorough comparison: crash: signal 9"),
        (Raced(raced("openvino", {"openvino": 16.1}).verdict, {}, {"openvino/bf16": "its error is large"}),
         "openvino/bf16", "its error is large"),
    ],
    ids=["unraced", "placement", "library", "failed", "excluded"],
)  # fmt: skip
def test_what_seems_faster_than_the_answer_has_the_reason_why_it_is_not(final: Raced, name: str, remark: str) -> None:
    by_key = {point.key or point.single: point for point in front_points(TRIED, BASELINES, final, LIMIT)}
    assert by_key[KEYS.get(name, name)].remark == remark
    assert by_key["openvino"].answer


def test_a_placement_in_the_words_of_a_baseline_is_told_from_it() -> None:
    space = SearchSpace(make_graph([()]), (Match(1, "openvino", EXACT),), CostModel((1.0,), {}))
    whole, origin = place((0,), space), Origin(Way.DYNAMIC_PROGRAM, seeded=True)
    tried = Tried(space, {whole.key: Evaluated(encode(whole, space), Outcome(14.0, error=0.0), origin, 1, 1, 1.0)})
    found = front_points(tried, BASELINES[:1], raced("openvino", {"openvino": 16.1}), LIMIT)
    whats = {point.key: point.what for point in found}
    assert whats == {"": "OpenVINO in float32", whole.key: "OpenVINO in float32 on the simplified graph"}


def test_without_a_search_each_backend_is_a_point() -> None:
    (found,) = front_points(None, BASELINES[:1], raced("openvino", {"openvino": 5.0}), LIMIT)
    assert (found.answer, found.pareto, found.latency_ms) == (True, True, 5.0)
