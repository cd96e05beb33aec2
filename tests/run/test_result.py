"""No seed in the report seems faster than the answer without a reason beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.answer.race import Race
from collage_evo.backends.variants import Arithmetic
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.report.result import FrontPoint, Latency
from collage_evo.run import result_parts as stage
from collage_evo.run.front import UNRACED
from collage_evo.run.result import excluded_notes, raced
from collage_evo.run.result_parts import seed_results
from collage_evo.run.search import Searched

TIMES_MS = {"winner": 59.0, "loser": 60.0, "unlucky": 61.0, "wrong": 62.0, "dead": 63.0, "slow": 80.0}


def remarks(monkeypatch: pytest.MonkeyPatch, is_single: bool) -> dict[str, str]:
    """By seed; all but ``unlucky`` raced, and the answer took 71 ms."""
    numerics = ((Arithmetic.INT8, 0b11),)
    regions = (SimpleNamespace(backend="openvino", variant="bf16", nodes=0b1111, numerics=numerics),)
    placements = {key: SimpleNamespace(key=key, regions=regions) for key in (*TIMES_MS, "unmeasured")}
    monkeypatch.setattr(stage, "decode", lambda genome, space: placements[genome])
    space: Any = SimpleNamespace(predict=lambda placement: 1.0)
    seeds: Any = SimpleNamespace(made=[(key, key) for key in placements])
    found: Any = SimpleNamespace(
        ranked=[placements[key] for key in ("loser", "winner", "slow", "wrong", "dead")],
        outcomes={key: Outcome(ms, n=7) for key, ms in TIMES_MS.items()},
    )
    times = {"placement-0": 72.0, "placement-1": 71.0 if not is_single else 70.0}
    final = Race({n: (((ms,),),) for n, ms in times.items()}, {"placement-4": Failure(Fault.CRASH, "crashed")})
    verdict: Any = SimpleNamespace(candidate="placement-1", is_single=is_single, final=final)
    best = Latency("best", 71.0)
    model: Any = None
    costs: Any = SimpleNamespace(space=space)
    searched = Searched(model, (), costs, seeds, found)
    race = raced(searched.keys, verdict, excluded={"placement-3": "its error is large"})
    rows = seed_results(searched, best, race.fates, final, 1.1)
    assert {row.what for row in rows} == {"OpenVINO in bfloat16 with 2 of 4 operators in int8"}
    raced_ms = {"loser": 72.0, "winner": times["placement-1"]}
    told = {row.kind: row.latency.median_ms for row in rows}
    assert told.pop("unmeasured") is None
    assert told == pytest.approx({key: raced_ms.get(key, 1.1 * ms) for key, ms in TIMES_MS.items()})
    assert {row.kind for row in rows if row.latency.scaled} == set(TIMES_MS) - set(raced_ms)
    return {row.kind: row.latency.reason for row in rows}


def test_each_that_seems_faster_says_why_it_is_not_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    told = remarks(monkeypatch, is_single=True)
    assert "not faster than all libraries for certain" in told["winner"]
    assert told["loser"] == "", "it was not faster where both ran in turns"
    assert told["unlucky"] == UNRACED
    assert told["dead"].startswith("it failed when it was checked: ")
    assert told["wrong"] == "its error is large"
    assert told["slow"] == ""
    assert told["unmeasured"] == "not timed: the search was over"


def test_what_was_faster_and_exceeds_the_budget_is_named_with_its_reason() -> None:
    points = [
        FrontPoint(5.0, 0.01, "key", "mutation", ("bfloat16", "int8"), what="OpenVINO in bfloat16 with 65 in int8"),
        FrontPoint(6.0, 0.01, "", "alone", ("int8",), "ncnn/int8", what="ncnn in int8"),
    ]
    excluded = {"placement-0": "its error is 0.022", "ncnn/int8": "its error is 0.03"}
    assert excluded_notes(points, {"placement-0": "key"}, excluded) == [
        "OpenVINO in bfloat16 with 65 in int8 was faster, but its error is 0.022",
        "ncnn in int8 was faster, but its error is 0.03",
    ]


def test_the_answer_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remarks(monkeypatch, is_single=False)["winner"] == "", "it has the answer's own time"
