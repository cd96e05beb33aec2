"""Result of a run: reasons of what seems faster than the answer, and its environment."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime

import pytest

from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.candidates import Tried
from collage_evo.answer.race import Race
from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.encoding import place
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match, Placement
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.report.places import COMMAND
from collage_evo.report.result import FrontPoint
from collage_evo.run.front import UNRACED, Raced
from collage_evo.run.result import excluded_notes
from collage_evo.run.result_parts import environment, node_times, saved_results, seed_results
from collage_evo.search.evolution.origin import Origin, Way
from tests.support.measured import two_nodes
from tests.support.spaces import make_graph

UNRACED_MS, RACED_MS = 60.0, 72.0


def reason(fate: str, answer_ms: float) -> str:
    """Why a seed is not the answer, which took ``answer_ms``; its ``fate`` in the race, if it raced."""
    tried, placements = two_nodes()
    key = placements["first"].key
    evaluated = {key: replace(tried.evaluated[key], outcome=Outcome(UNRACED_MS, n=7))}
    made = [(Origin(Way.DYNAMIC_PROGRAM), evaluated[key].genome)]
    times = {"openvino": answer_ms, **({"placement-0": RACED_MS} if fate in ("candidate", "raced") else {})}
    failed = {"placement-0": Failure(Fault.CRASH, "signal 9")} if fate == "failed" else {}
    race = Race({name: (((ms,),),) for name, ms in times.items()}, failed)
    verdict = Verdict("openvino", "openvino", ITSELF, "placement-0" if fate == "candidate" else "", ITSELF, race)
    excluded = {"placement-0": "its error is large"} if fate == "excluded" else {}
    raced = Raced(verdict, {} if fate == "unraced" else {"placement-0": key}, excluded)
    tried = replace(tried, evaluated={} if fate == "unmeasured" else evaluated)
    (seed,) = seed_results(made, tried, raced, raced.fates, 1.1)
    in_race = fate in ("candidate", "raced")
    assert seed.what == "OpenVINO in bfloat16 (1 of 2 operators) and OpenVINO in float32 (1 operators), in 2 regions"
    assert seed.latency.scaled is (not in_race and fate != "unmeasured")
    assert seed.latency.median_ms == pytest.approx(None if fate == "unmeasured" else RACED_MS if in_race else 66.0)
    return seed.latency.reason


@pytest.mark.parametrize(
    ("fate", "answer_ms", "expected"),
    [
        ("candidate", 73.0, "compared thoroughly, not faster than all libraries for certain"),
        ("raced", 73.0, "it was not faster for certain in the thorough comparison"),
        ("raced", 71.0, ""),
        ("unraced", 67.0, UNRACED),
        ("unraced", 65.0, ""),
        ("failed", 67.0, "it failed when it was checked: crashed over it: signal 9"),
        ("excluded", 67.0, "its error is large"),
        ("unmeasured", 67.0, "not timed: the search was over"),
    ],
)
def test_a_seed_that_seems_faster_than_the_answer_has_a_reason(fate: str, answer_ms: float, expected: str) -> None:
    assert reason(fate, answer_ms) == expected


def test_what_was_faster_and_exceeds_the_budget_is_named_with_its_reason() -> None:
    points = [
        FrontPoint(5.0, 0.01, "key", "mutation", ("bfloat16", "int8"), what="OpenVINO in bfloat16 with 65 in int8"),
        FrontPoint(6.0, 0.01, "", "alone", ("int8",), "ncnn/int8", what="ncnn in int8"),
    ]
    excluded = {"placement-0": "its error is 0.022", "ncnn/int8": "its error is 0.03"}
    assert excluded_notes(points, {"placement-0": "key"}, excluded) == (
        "OpenVINO in bfloat16 with 65 in int8 is not the answer: its error is 0.022",
        "ncnn in int8 is not the answer: its error is 0.03",
    )


def test_a_kernel_s_time_is_that_of_its_heavy_operators() -> None:
    kinds = {"conv": "Conv", "bias": "Add", "relu": "Relu", "gemm": "Gemm", "cast": "Cast", "pad": "Pad"}
    kernels = [(("conv", "bias", "relu"), 6.0), (("cast", "pad"), 2.0), (("conv", "gemm"), 8.0), ((), 4.0)]
    times_ms = node_times(kinds, kernels, 10.0)
    assert times_ms == {"conv": 5.0, "gemm": 2.0, "bias": 0.0, "relu": 0.0, "cast": 0.5, "pad": 0.5}
    assert node_times(kinds, [], 10.0) == {}, "a library without a profile"
    assert node_times(kinds, [(("conv",), 0.0)], 0.001) == {}, "kernels that take no microsecond"


def mixed() -> tuple[Tried, Placement]:
    """A product in int8, an Add in bfloat16 and one in float32, in one library, and their float32 costs."""
    costs = {(0, "default"): 6.0, (0, "int8"): 2.0, (1, "default"): 2.0, (1, "bf16"): 1.0, (2, "default"): 1.0}
    int8 = {(0, "int8"): ((Arithmetic.INT8, 1),)}
    base = {"int8": "default"}
    matches = tuple(
        Match(1 << node, "openvino", variant, int8.get((node, variant), ()), base=base.get(variant, ""))
        for node, variant in costs
    )
    families = {("openvino", "int8"): ("openvino", "default")}
    borders = {match.engine: Border(0.0, 0.0) for match in matches}
    cost = CostModel(tuple(costs.values()), borders, families=families)
    terms = {Objective.ERROR: (0.0, 3e-4, 0.0, 1e-4, 0.0)}
    space = SearchSpace(make_graph([(), (0,), (1,)], operators=["MatMul", "Add", "Add"]), matches, cost, terms=terms)
    return Tried(space, {}), place((1, 3, 4), space)


@pytest.mark.parametrize(
    ("float32_ms", "saved_ms"),
    [({"openvino": 18.0, "ncnn": 9.0}, (8.0, 2.0)), ({"ncnn": 18.0}, (None, None))],
    ids=["of costs that add up to half of it", "without a time in float32"],
)
def test_each_lower_precision_has_what_it_saves_and_its_part_in_the_error(
    float32_ms: dict[str, float], saved_ms: tuple[float | None, float | None]
) -> None:
    product, added = saved_results(*mixed(), 8.0, float32_ms)
    assert (product.arithmetic, product.kind, product.operators) == ("int8", "MatMul", 1)
    assert (added.arithmetic, added.kind, added.operators) == ("bfloat16", "Add", 1)
    assert (product.error_share, added.error_share) == pytest.approx((0.75, 0.25))
    assert (product.saved_ms, added.saved_ms) == pytest.approx(saved_ms)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/opt/venv/bin/collage-evo", "run", "my model.onnx", "--threads", "2"],
         f"{COMMAND} run 'my model.onnx' --threads 2"),
        (["/opt/collage_evo/__main__.py", "resume", "runs/x"], f"{COMMAND} resume runs/x"),
        (["/opt/service/__main__.py", "--token", "secret"], ""),
    ],
    ids=["script", "module", "another program's own arguments"],
)  # fmt: skip
def test_the_environment_has_date_and_command(monkeypatch: pytest.MonkeyPatch, argv: list[str], command: str) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    before = datetime.now().astimezone().replace(microsecond=0)
    made = environment("a CPU", {"ncnn": "1"})
    assert made["command"] == command
    assert before <= datetime.fromisoformat(made["date"]) <= datetime.now().astimezone()
