"""What a comparison tells a person and a script follows from intervals and errors."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from collage_evo.answer.sequential import Ratio
from collage_evo.genome.failure import Failure, Fault
from collage_evo.report.comparison import (
    ARTIFACT,
    OVER_BUDGET,
    SLOWER,
    Comparison,
    Side,
    failed,
    notes,
    print_comparison,
    verdict,
)
from collage_evo.report.console import PlainConsole
from collage_evo.report.result import FrontPoint

OURS = Side(ARTIFACT, latency_ms=2.0, error=0.01)


def over(low: float, high: float) -> Ratio:
    return Ratio((low * high) ** 0.5, low, high, (low, high))


def comparison(*libraries: Side, ours: Side = OURS, budget: float | None = 0.02) -> Comparison:
    def judged(side: Side) -> Side:
        within = budget is None or (side.error is not None and side.error <= budget)
        return replace(side, feasible=within and side.latency_ms is not None)

    given = ("a.collage", {"x": [1, 4]}, "m.onnx", 1, "a processor", 8, "of d.npz", "")
    sides = tuple(map(judged, libraries))
    return Comparison(*given, budget=budget, ours=judged(ours), libraries=sides, rounds=6, seconds=1.0)


def beside(*front: Side, ours: Side = OURS) -> Comparison:
    """A comparison of ``ours`` with the other points of its front, all of them within the budget."""
    before = FrontPoint(2.5, 0.02, "", "the cheapest cover", ("float32", "int8"), answer=True)
    plain = comparison(ours=replace(ours, before=before))
    return replace(plain, front=tuple(replace(side, feasible=True) for side in front), made_on="an old processor")


def point(how: str, ms: float, ratio: Ratio) -> Side:
    return Side(how, True, ms, 0.0, ratio, True, before=FrontPoint(1.5, 0.01, how, how, ("float32",)))


FASTER = Side("slow", latency_ms=3.0, error=0.0, over=over(1.4, 1.6), raced=True)
LEVEL = Side("level", latency_ms=2.0, error=0.0, over=over(0.9, 1.1), raced=True)
BEATEN = Side("fast", latency_ms=1.0, error=0.0, over=over(0.4, 0.6), raced=True)


@pytest.mark.parametrize(
    ("found", "at_least", "code"),
    [
        (comparison(FASTER, LEVEL), 1.0, 0),
        (comparison(FASTER), 2.0, SLOWER),
        (comparison(FASTER, BEATEN), 1.0, SLOWER),
        (comparison(replace(BEATEN, error=0.5)), 1.0, 0),
        (comparison(FASTER, ours=replace(OURS, error=0.03)), 1.0, OVER_BUDGET),
        (comparison(BEATEN, ours=replace(OURS, error=0.03)), 1.0, OVER_BUDGET),
        (comparison(FASTER, ours=Side(ARTIFACT, reason="no such processor")), 1.0, OVER_BUDGET),
        (comparison(FASTER, ours=Side(ARTIFACT, reason="no such processor"), budget=None), 1.0, OVER_BUDGET),
        (comparison(FASTER, ours=replace(OURS, error=0.03), budget=None), 1.0, 0),
    ],
    ids=["fine", "not enough", "beaten", "beaten by who is too wrong", "too wrong", "too wrong first", "dead",
         "dead without a budget", "no budget"],
)  # fmt: skip
def test_a_script_hears_of_what_is_certain_and_of_errors_first(found: Comparison, at_least: float, code: int) -> None:
    assert found.exit_code(at_least) == code


def test_the_verdict_names_the_fastest_library_that_keeps_the_budget() -> None:
    told = verdict(comparison(FASTER, LEVEL, replace(BEATEN, error=0.5)))
    assert told == (
        "The artifact is 0.99 [0.90, 1.10] times as fast as level with its defaults, the fastest that meets the "
        "budget "
        "(whether at least 1 is not certain: --seconds gives more turns); its error is 0.01 (budget 0.02)."
    )
    assert "not certain" not in verdict(comparison(FASTER))


def test_the_verdict_says_where_a_call_adds_as_much_as_the_artifact_wins() -> None:
    short = replace(comparison(FASTER), call_ms=1.2)
    told = "A call of the artifact's session adds 1.20 ms, no less than it wins over slow with its defaults"
    assert told in verdict(short)
    for call_ms in (0.9, None):
        assert "session" not in verdict(replace(short, call_ms=call_ms))
    assert "session" not in verdict(replace(comparison(BEATEN), call_ms=1.2)), "it wins nothing"


def test_the_verdict_says_who_beats_it_and_what_it_breaks() -> None:
    assert "not 1 times as fast as fast with its defaults" in verdict(comparison(FASTER, BEATEN))
    assert "exceeds the budget: its error is 0.03" in verdict(comparison(ours=replace(OURS, error=0.03)))
    assert "does not run here: no such processor" in verdict(
        comparison(ours=Side(ARTIFACT, reason="no such processor"))
    )


def test_a_point_of_the_front_that_is_faster_for_certain_is_a_reason_to_search_again() -> None:
    level, faster = point("a level one", 1.9, over(0.9, 1.1)), point("a mixture", 1.8, over(0.85, 0.95))
    assert verdict(beside(level)) == (
        "The artifact's error is 0.01 (budget 0.02). Nothing of its front is faster here for certain."
    )
    assert verdict(beside(level, faster)) == (
        "The artifact's error is 0.01 (budget 0.02). Of its front, a mixture is faster here: the artifact is 0.90 "
        "[0.85, 0.95] times as fast: run the search again on this machine."
    )
    assert beside(faster).exit_code(1.0) == 0, "it is no library"


@pytest.mark.parametrize("ours", [replace(OURS, error=0.03), Side(ARTIFACT, reason="no such processor")])
def test_where_the_artifact_is_of_no_use_the_fastest_of_its_front_is_named(ours: Side) -> None:
    slow, fast = point("a slow one", 3.0, over(1.0, 1.1)), point("a fast one", 1.8, over(0.85, 0.95))
    told = verdict(beside(slow, fast, ours=ours))
    assert told.endswith("The fastest of its front that meets the budget here is a fast one: run the search again on "
                         "this machine.")  # fmt: skip
    assert verdict(beside(ours=ours)).endswith("Nothing of its front meets the budget here: run the search again on "
                                               "this machine.")  # fmt: skip


def test_a_table_with_the_front_has_times_and_errors_then_and_now() -> None:
    console = PlainConsole(width=200, file=io.StringIO(), record=True)
    found = replace(beside(point("a mixture", 1.8, over(0.85, 0.95))), other_processor="it lacks avx2")
    print_comparison(found, 1.0, console)
    text = console.export_text()
    assert re.search(r"ms +artifact over it +error +ms then +error then", text)
    assert re.search(r"the artifact; the cheapest cover +2 +1\.0e-02 +2\.5 +2\.0e-02", text)
    assert re.search(r"a mixture +1\.8 +0\.90 \[0\.85, 0\.95\] +0\.0e\+00 +1\.5 +1\.0e-02", text)
    assert "Then: as the run measured it, on an old processor." in text
    assert "it lacks avx2. The answer is compiled again for this one." in text
    print_comparison(comparison(FASTER), 1.0, console)
    assert "then" not in console.export_text()


def test_another_processor_another_file_and_converted_models_are_told() -> None:
    plain = comparison(FASTER)
    odd = replace(
        plain, other_processor="it lacks avx2", other_file=True, libraries=(replace(FASTER, own_settings=False),)
    )
    assert len(notes(plain)) == 1
    assert [told.split(":")[0] for told in notes(odd)[1:]] == ["Converted", "Another processor", "Another file"]


def test_what_a_library_says_for_itself_is_a_sentence_and_kept_apart() -> None:
    raw = "tvm: InternalError: Check failed: (msgs[i].IsNested()) is false"
    side = failed(Side("tvm"), Failure(Fault.BUILD, detail=raw))
    assert side.reason == "TVM cannot compile it"
    assert side.detail == f"build: {raw}"
    assert failed(Side(ARTIFACT), Failure(Fault.REFUSED, "it needs avx512")).reason == "refused: it needs avx512"
    side = failed(point("a mixture", 1.8, over(0.8, 0.9)), Failure(Fault.BUILD, detail=raw))
    assert (side.reason, side.detail) == ("cannot compile it", f"build: {raw}")
