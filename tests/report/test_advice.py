"""Advice at the end of a run: each piece is given where its condition holds, and not where it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage_evo.answer.answer import Proof
from collage_evo.report import advice as rules
from collage_evo.report.advice import ADVICE, advice
from collage_evo.report.places import COMMAND
from collage_evo.report.result import Accuracy, FrontPoint, Latency, LibraryResult, Result, SearchResult, Speedup
from tests.support.results import result as approved

ROOT = Path(__file__).parents[2]
RUN = Path("runs/detector")
ACCURACY = replace(approved().accuracy, held_out=(), over_budget=None, notes=())
SEARCH = SearchResult(100, {}, 5, 0, 100.0, 30.0, 40, [])
RIVAL = LibraryResult("openvino/bf16", "openvino", "bf16", 4.0, 1.5e-2, Speedup(0.8, 0.7, 0.9, (0.8,)), keeps=False)
FLOAT32 = FrontPoint(5.0, 1e-6, "", "whole", ("float32",), "openvino", feasible=True, answer=True, pareto=True)
BFLOAT16 = replace(FLOAT32, arithmetics=("bfloat16",), single="openvino/bf16", error=5e-3)
OVER = FrontPoint(3.0, 3e-2, "key", "mixed", ("bfloat16",), pareto=True)
INT8 = FrontPoint(6.0, 1e-3, "key", "mixed", ("float32", "int8"), feasible=True)
LATE = replace(SEARCH, time_to_best_seconds=90.0)
SKIPPED = replace(SEARCH, skipped=True)


def result(**changes: Any) -> Result:
    """OpenVINO in float32 is the answer, on the only core, with data, and no combination came close: no advice."""
    plain = replace(
        approved(),
        target={"device": "cpu", "threads": 1, "allowed_threads": 1},
        environment={"cores": 1, "backends": {"openvino": "2025.0"}},
        best=Latency("best", 5.0, 4.95, 5.05, 100),
        answer="openvino",
        best_single="openvino",
        speedup_over_best_single=Speedup(1.0, 1.0, 1.0, (), by_definition=True),
        candidate_speedup=Speedup(0.56, 0.55, 0.57, (0.56,)),
        search=SEARCH,
        front=[FLOAT32],
        libraries=(),
    )
    return replace(plain, **changes)


def ratio(estimate: float, low: float, high: float) -> Speedup:
    return Speedup(estimate, low, high, (estimate,))


def accuracy(**changes: Any) -> Accuracy:
    return replace(ACCURACY, **changes)


def on(device: str = "cpu", allowed: int = 1) -> dict[str, Any]:
    return {"device": device, "threads": 1, "allowed_threads": allowed}


def here(cores: int = 1, *backends: str) -> dict[str, Any]:
    return {"cores": cores, "backends": dict.fromkeys(backends or ("openvino",), "1")}


RANDOM = accuracy(random=True)
EXACT = accuracy(budget="exact", largest=None)
WON = {"answer": "placement"}
NOISY = Latency("best", 5.0, 4.0, 9.0, 100)

GIVEN: dict[Callable[..., str], list[dict[str, Any]]] = {
    rules.budget_too_small: [{"front": [replace(FLOAT32, feasible=False)]}],
    rules.library_over_budget: [{"libraries": (RIVAL,)}],
    rules.noisy_times: [{"best": NOISY, "candidate_speedup": ratio(0.9, 0.8, 1.0)}],
    rules.data_for_int8: [{"accuracy": RANDOM}, {"accuracy": RANDOM, "front": [BFLOAT16]}],
    rules.own_inputs: [
        {"accuracy": RANDOM, "front": [BFLOAT16, INT8]},
        {"accuracy": RANDOM, "front": [BFLOAT16], "environment": here(1, "ncnn")},
    ],
    rules.small_error: [{"accuracy": EXACT}, {"accuracy": replace(EXACT, random=True)}],
    rules.larger_budget: [{"front": [BFLOAT16, OVER]}, {"front": [BFLOAT16, OVER], **WON}],
    rules.more_time: [
        {"search": LATE, "candidate_speedup": ratio(0.99, 0.97, 1.01)},
        {"candidate_speedup": ratio(1.01, 0.99, 1.03)},
    ],
    rules.not_compared: [{"proof": Proof.NONE}],
    rules.search_skipped: [{"search": SKIPPED}, {"search": SKIPPED, **WON}],
    rules.more_threads: [{"environment": here(2)}, {"environment": here(2), "best": Latency("best", 1.0, n=100)}],
}
"""What a result needs so that a piece is given; also where another value would give it too."""

NOT_GIVEN: dict[Callable[..., str], list[dict[str, Any]]] = {
    rules.budget_too_small: [{}, {"front": [replace(FLOAT32, feasible=False), replace(FLOAT32, answer=False)]}],
    rules.library_over_budget: [
        {"libraries": (replace(RIVAL, keeps=True),)},
        {"libraries": (replace(RIVAL, error=None),)},
        {"libraries": (replace(RIVAL, speedup=ratio(1.2, 1.1, 1.3)),)},
        {"libraries": (RIVAL,), "accuracy": accuracy(metric="top1")},
        {"libraries": (RIVAL,), "accuracy": EXACT},
        {"libraries": (RIVAL,), **WON},
    ],
    rules.noisy_times: [
        {"best": NOISY, "candidate_speedup": ratio(0.9, 0.89, 0.91)},
        {"candidate_speedup": ratio(0.9, 0.8, 1.0)},
        {"best": NOISY, "candidate_speedup": ratio(0.9, 0.8, 1.0), **WON},
    ],
    rules.data_for_int8: [
        {},
        {"accuracy": replace(RANDOM, budget="exact", largest=None)},
        {"accuracy": replace(RANDOM, budget=1e-3, largest=1e-3)},
        {"accuracy": RANDOM, "front": [FLOAT32, INT8]},
        {"accuracy": RANDOM, "target": on("cuda")},
        {"accuracy": RANDOM, "environment": here(1, "ncnn")},
        {"accuracy": RANDOM, "not_searched": "the model has a loop", "search": None},
    ],
    rules.own_inputs: [
        {"front": [BFLOAT16, INT8]},
        {"accuracy": RANDOM, "front": [FLOAT32, INT8]},
        {"accuracy": RANDOM, "front": [BFLOAT16]},
    ],
    rules.small_error: [
        {},
        {"accuracy": EXACT, **WON},
        {"accuracy": EXACT, "front": [BFLOAT16]},
        {"accuracy": EXACT, "environment": here(1, "tvm")},
    ],
    rules.larger_budget: [
        {"front": [BFLOAT16]},
        {"front": [BFLOAT16, replace(OVER, latency_ms=4.9)]},
        {"front": [BFLOAT16, replace(OVER, pareto=False)]},
        {"front": [BFLOAT16, replace(OVER, error=None)]},
        {"front": [BFLOAT16, OVER], "accuracy": accuracy(metric="top1")},
        {"front": [FLOAT32, OVER], "accuracy": EXACT},
    ],
    rules.more_time: [
        {"search": LATE},
        {"search": LATE, "candidate_speedup": Speedup(1.0, 1.0, 1.0, ())},
        {"candidate_speedup": ratio(0.99, 0.97, 1.01)},
        {"search": None, "candidate_speedup": ratio(1.01, 0.99, 1.03)},
        {"search": SKIPPED, "candidate_speedup": ratio(1.01, 0.99, 1.03)},
        {"candidate_speedup": ratio(1.01, 0.99, 1.03), **WON},
    ],
    rules.not_compared: [{}, {"proof": Proof.UNDECIDED}],
    rules.search_skipped: [{}, {"search": None}],
    rules.more_threads: [
        {},
        {"environment": here(2), "best": Latency("best", 0.012, 0.012, 0.012, 100)},
        {"environment": here(2), "target": on(allowed=2)},
        {"environment": here(2), "target": on("cuda")},
        {"environment": here(2), "objective": "throughput"},
        {"environment": here(2), **WON},
    ],
}


def cases(table: dict[Callable[..., str], list[dict[str, Any]]]) -> list[Any]:
    return [
        pytest.param(rule, changes, id=f"{rule.__name__}-{number}")
        for rule, every in table.items()
        for number, changes in enumerate(every)
    ]


@pytest.mark.parametrize(("rule", "changes"), cases(GIVEN))
def test_advice_is_given_where_its_condition_holds(rule: Callable[..., str], changes: dict[str, Any]) -> None:
    given = result(**changes)
    assert rule(given, RUN) in advice(given, RUN)
    assert rule(given, RUN)


@pytest.mark.parametrize(("rule", "changes"), cases(NOT_GIVEN))
def test_advice_is_absent_where_its_condition_fails(rule: Callable[..., str], changes: dict[str, Any]) -> None:
    assert rule(result(**changes), RUN) == ""


def test_every_piece_of_advice_is_tested_on_both_sides() -> None:
    assert set(GIVEN) == set(NOT_GIVEN) == set(ADVICE)


def test_a_result_that_nothing_would_change_has_no_advice() -> None:
    assert advice(result(), RUN) == []


def test_data_is_advised_once() -> None:
    assert sum("--data" in sentence for sentence in advice(result(accuracy=RANDOM, front=[BFLOAT16]), RUN)) == 1


def test_int8_is_promised_by_a_small_error_only_together_with_data() -> None:
    assert "--data" in rules.small_error(result(accuracy=replace(EXACT, random=True)), RUN)
    assert "--data" not in rules.small_error(result(accuracy=EXACT), RUN)


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({}, 0.035),
        ({"accuracy": accuracy(error_search=0.011)}, 0.032),
        ({"accuracy": accuracy(interval=None)}, 0.033),
        ({"accuracy": accuracy(error_search=1e-6)}, 0.048),
        ({"accuracy": accuracy(interval=None, error_held_out=None)}, 0.032),
        ({"front": [BFLOAT16, replace(OVER, error=9e-3, feasible=True, held_out=0.0125)]}, 0.014),
    ],
    ids=["as the answer's grew", "it shrank", "no interval", "answer in float32", "none held out", "judged itself"],
)
def test_an_advised_budget_is_of_held_out_samples(changes: dict[str, Any], budget: float) -> None:
    given = result(**{"front": [BFLOAT16, OVER], **changes})
    assert rules.larger_budget(given, RUN).endswith(f"--budget {budget}")


def test_a_library_that_broke_the_budget_on_held_out_samples_is_advised_with_that_error() -> None:
    point = replace(BFLOAT16, answer=False, held_out=0.02)
    given = result(libraries=(replace(RIVAL, error=5e-3),), front=[FLOAT32, point])
    assert rules.library_over_budget(given, RUN).endswith("--budget 0.021")


def test_two_rules_that_lead_to_one_command_are_one_piece_of_advice() -> None:
    point = replace(BFLOAT16, answer=False, feasible=False, error=1.5e-2, latency_ms=4.0)
    given = advice(result(libraries=(RIVAL,), front=[FLOAT32, point]), RUN)
    assert sum("pick" in sentence for sentence in given) == 1


def test_advice_is_nothing_that_is_refused(tmp_path: Path) -> None:
    given = result(front=[BFLOAT16, OVER])
    assert COMMAND in advice(given, tmp_path)[0]
    (tmp_path / "checkpoint.json").write_text("{}")  # the records are missing from which a search continues
    assert advice(given, tmp_path) == []
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "matches.json").write_text("{}")
    assert COMMAND in advice(given, tmp_path)[0]


def test_the_documentation_lists_every_condition_in_the_same_order() -> None:
    text = (ROOT / "docs/reference/report.md").read_text()
    section = text.partition("## Advice at the end of a run\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:] == [" ".join((rule.__doc__ or "").split()) for rule in ADVICE]
