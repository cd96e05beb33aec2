"""What a comparison tells a person and a script follows from intervals and errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collage_evo.answer.sequential import Ratio
from collage_evo.placement.failure import Failure, Fault
from collage_evo.report.comparison import ARTIFACT, OVER_BUDGET, SLOWER, Comparison, Side, failed, notes, verdict

OURS = Side(ARTIFACT, latency_ms=2.0, error=0.01)


def over(low: float, high: float) -> Ratio:
    return Ratio((low * high) ** 0.5, low, high, (low, high))


def comparison(*libraries: Side, ours: Side = OURS, budget: float | None = 0.02) -> Comparison:
    given = ("a.collage", {"x": [1, 4]}, "m.onnx", 1, "a processor", 8, "of d.npz", "")
    return Comparison(*given, budget=budget, ours=ours, libraries=libraries, rounds=6, seconds=1.0)


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


def test_the_verdict_says_who_beats_it_and_what_it_breaks() -> None:
    assert "not 1 times as fast as fast with its defaults" in verdict(comparison(FASTER, BEATEN))
    assert "exceeds the budget: its error is 0.03" in verdict(comparison(ours=replace(OURS, error=0.03)))
    assert "does not run here: no such processor" in verdict(
        comparison(ours=Side(ARTIFACT, reason="no such processor"))
    )


def test_another_processor_another_file_and_converted_models_are_told() -> None:
    plain = comparison(FASTER)
    odd = replace(
        plain, other_processor="it lacks avx2", other_file=True, libraries=(replace(FASTER, own_settings=False),)
    )
    assert len(notes(plain)) == 1
    assert [told.split(":")[0] for told in notes(odd)[1:]] == ["Converted", "Another processor", "Another file"]


def test_what_a_library_says_for_itself_is_a_sentence_and_kept_apart() -> None:
    raw = "tvm: InternalError: Check failed: (msgs[i].IsNested()) is false"
    side = failed(Side("tvm"), Failure(Fault.BUILD, raw))
    assert side.reason == "TVM cannot compile it"
    assert side.detail == f"build: {raw}"
    assert failed(Side(ARTIFACT), Failure(Fault.REFUSED, "it needs avx512")).reason == "refused: it needs avx512"
