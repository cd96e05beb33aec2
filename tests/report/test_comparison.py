"""Comparison of an artifact: exit code and verdict follow from intervals and errors, errors first."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from collage_evo.answer.sequential import Ratio
from collage_evo.genome.failure import Failure, Fault
from collage_evo.report.comparison import (
    AGAIN,
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
from collage_evo.report.result import FrontPoint
from tests.support.terminal import printed

OURS = Side(ARTIFACT, latency_ms=2.0, error=0.01)
OVER = replace(OURS, error=0.03)
DEAD = Side(ARTIFACT, reason="no such processor")


def ratio(low: float, high: float) -> Ratio:
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


def point(how: str, ms: float, over: Ratio) -> Side:
    return Side(how, True, ms, 0.0, over, True, before=FrontPoint(1.5, 0.01, how, how, ("float32",)))


FASTER = Side("slow", latency_ms=3.0, error=0.0, over=ratio(1.4, 1.6), raced=True)
LEVEL = Side("level", latency_ms=2.0, error=0.0, over=ratio(0.9, 1.1), raced=True)
BEATEN = Side("fast", latency_ms=1.0, error=0.0, over=ratio(0.4, 0.6), raced=True)
INEXACT = replace(BEATEN, error=0.5)
MIXTURE, SLOW = point("a mixture", 1.8, ratio(0.85, 0.95)), point("a slow one", 3.0, ratio(1.0, 1.1))
WITHIN = "The artifact's error is 0.01 (budget 0.02)."
CALL = "A call of the artifact's session adds 1.20 ms, no less than it wins over slow with its defaults"


@pytest.mark.parametrize(
    ("found", "at_least", "code"),
    [
        (comparison(FASTER, LEVEL), 1.0, 0),
        (comparison(FASTER), 2.0, SLOWER),
        (comparison(FASTER, BEATEN), 1.0, SLOWER),
        (comparison(INEXACT), 1.0, 0),
        (comparison(FASTER, ours=OVER), 1.0, OVER_BUDGET),
        (comparison(BEATEN, ours=OVER), 1.0, OVER_BUDGET),
        (comparison(FASTER, ours=DEAD), 1.0, OVER_BUDGET),
        (comparison(FASTER, ours=DEAD, budget=None), 1.0, OVER_BUDGET),
        (comparison(FASTER, ours=OVER, budget=None), 1.0, 0),
        (beside(MIXTURE), 1.0, 0),
    ],
    ids=["fine", "not enough", "beaten", "beaten by who is too wrong", "too wrong", "too wrong first", "dead",
         "dead without a budget", "no budget", "a point of the front is no library"],
)  # fmt: skip
def test_exit_code(found: Comparison, at_least: float, code: int) -> None:
    assert found.exit_code(at_least) == code


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (comparison(FASTER, LEVEL, INEXACT),
         "The artifact is 0.99 [0.90, 1.10] times as fast as level with its defaults, the fastest that meets the "
         "budget (whether at least 1 is not certain: --seconds gives more turns); its error is 0.01 (budget 0.02)."),
        (comparison(FASTER), "The artifact is 1.50 [1.40, 1.60] times as fast as slow with its defaults, the fastest "
         "that meets the budget; its error is 0.01 (budget 0.02)."),
        (comparison(FASTER, BEATEN), "Slower: the artifact is not 1 times as fast as fast with its defaults; the "
         "artifact is 0.49 [0.40, 0.60] times as fast as fast with its defaults, the fastest that meets the budget. "
         "Its error is 0.01 (budget 0.02)."),
        (comparison(ours=OVER), "The artifact exceeds the budget: its error is 0.03 (budget 0.02)."),
        (comparison(ours=DEAD), "The artifact does not run here: no such processor."),
        (beside(point("a level one", 1.9, ratio(0.9, 1.1))),
         f"{WITHIN} Nothing of its front is faster here for certain."),
        (beside(point("a level one", 1.9, ratio(0.9, 1.1)), MIXTURE),
         f"{WITHIN} Of its front, a mixture is faster here: the artifact is 0.90 [0.85, 0.95] times as fast: run the "
         "search again on this machine."),
        *((beside(SLOW, MIXTURE, ours=ours), f"{start} The fastest of its front that meets the budget here is a "
           "mixture: run the search again on this machine.")
          for ours, start in ((OVER, "The artifact exceeds the budget: its error is 0.03 (budget 0.02)."),
                              (DEAD, "The artifact does not run here: no such processor."))),
        (beside(ours=DEAD), "The artifact does not run here: no such processor. Nothing of its front meets the "
         "budget here: run the search again on this machine."),
    ],
)  # fmt: skip
def test_verdict(found: Comparison, sentence: str) -> None:
    assert verdict(found) == sentence


@pytest.mark.parametrize(
    ("found", "call_ms", "mentioned"),
    [
        (comparison(FASTER), 1.2, True),
        (comparison(FASTER), 0.9, False),
        (comparison(FASTER), None, False),
        (comparison(BEATEN), 1.2, False),
    ],
)
def test_a_call_is_mentioned_if_it_adds_as_much_as_the_artifact_wins(
    found: Comparison, call_ms: float | None, mentioned: bool
) -> None:
    assert (CALL in verdict(replace(found, call_ms=call_ms))) is mentioned


def there(name: str, over: Ratio | None, over_answer: Ratio | None = None, error: float = 0.01) -> Side:
    """A side of another environment: what the artifact here, and the side itself over the answer there, measured."""
    answer = over_answer or ratio(1.0, 1.0)
    feasible = over is not None and error <= 0.02
    here, ms = (None, None) if over is None else (ratio(1 / over.high, 1 / over.low), 2.0 * over.estimate)
    return Side(name, True, ms, error, over, ms is not None, feasible=feasible, python="/new/python",
                over_here=here, over_answer=answer)  # fmt: skip


SAME, WORSE = there(ARTIFACT, ratio(0.97, 1.02)), there(ARTIFACT, ratio(1.1, 1.2))
LOST, WRONG = there(ARTIFACT, None), there(ARTIFACT, ratio(0.5, 0.6), error=0.03)
AS_SLOW, AS_FAST = there("slow", ratio(1.4, 1.6), ratio(0.6, 0.7)), there("slow", ratio(0.95, 1.0), ratio(1.1, 1.2))
LEVEL = there("slow", ratio(0.95, 1.0))


@pytest.mark.parametrize(
    ("sides", "at_least", "code", "told"),
    [
        ((SAME, AS_SLOW), 1.0, 0, "Keep the answer: it is 1.01 [0.98, 1.03] times as fast there as here."),
        ((WORSE, AS_SLOW), 1.0, SLOWER, "Do not upgrade: nothing that meets the budget there is as fast"),
        ((WORSE, AS_SLOW), 0.9, 0, "Keep the answer: it is 0.87 [0.83, 0.91] times as fast there as here."),
        ((WORSE, AS_FAST), 1.0, AGAIN, "Run the search again there: slow there with its defaults is faster"),
        ((SAME, AS_FAST), 1.0, AGAIN, "Run the search again there: slow there with its defaults is faster"),
        ((WRONG, AS_FAST), 1.0, AGAIN, "Run the search again there: slow there with its defaults is faster"),
        ((LOST, AS_SLOW), 1.0, SLOWER, "Do not upgrade: nothing that meets the budget there is as fast"),
        ((LOST, LEVEL), 1.0, AGAIN, "there: the answer does not run within the budget, and slow there"),
    ],
    ids=["level", "slower", "slower within what is allowed", "a library is as fast as here", "a library is faster",
         "too wrong there", "lost there", "only a library there"],
)
def test_advice_on_another_environment(sides: tuple[Side, ...], at_least: float, code: int, told: str) -> None:
    found = replace(comparison(FASTER), there=sides, versions={"slow": ("1.0", "2.0")})
    assert found.exit_code(at_least) == code
    assert told in verdict(found, at_least)
    text = " ".join(printed(partial(print_comparison, found, at_least), 200).split())
    assert "There: /new/python, with slow 2.0 (here 1.0). There over here: " in text
    assert "slow there with its defaults" in text


def test_an_environment_in_which_nothing_runs_says_why() -> None:
    found = replace(comparison(FASTER), there=(replace(LOST, reason="it lacks openvino"),))
    assert found.exit_code(1.0) == SLOWER
    assert "Nothing runs there: it lacks openvino." in verdict(found)


def test_an_artifact_that_is_too_wrong_here_decides_before_another_environment() -> None:
    found = replace(comparison(FASTER, ours=OVER), there=(SAME,))
    assert found.exit_code(1.0) == OVER_BUDGET
    assert "Keep" not in verdict(found)


def test_a_table_with_the_front_has_times_and_errors_then_and_now() -> None:
    found = replace(beside(MIXTURE), other_processor="it lacks avx2")
    text = " ".join(printed(partial(print_comparison, found, 1.0), 200).split())
    assert re.search(r"ms artifact over it error ms then error then", text)
    assert re.search(r"the artifact; the cheapest cover 2 1\.0e-02 2\.5 2\.0e-02", text)
    assert re.search(r"a mixture 1\.8 0\.90 \[0\.85, 0\.95\] 0\.0e\+00 1\.5 1\.0e-02", text)
    assert "Then: as the run measured it, on an old processor." in text
    assert "it lacks avx2. The answer is compiled again for this one." in text
    assert "then" not in printed(partial(print_comparison, comparison(FASTER), 1.0))


def test_another_processor_another_file_and_converted_models_have_notes() -> None:
    plain, converted = comparison(FASTER), replace(FASTER, own_settings=False)
    odd = replace(plain, other_processor="it lacks avx2", other_file=True, libraries=(converted,))
    assert len(notes(plain)) == 1
    assert [note.split(":")[0] for note in notes(odd)[1:]] == ["Converted", "Another processor", "Another file"]


RAW = "tvm: InternalError: Check failed: (msgs[i].IsNested()) is false"


@pytest.mark.parametrize(
    ("side", "failure", "reason", "detail"),
    [
        (Side("tvm"), Failure(Fault.BUILD, detail=RAW), "TVM cannot compile it", f"build: {RAW}"),
        (MIXTURE, Failure(Fault.BUILD, detail=RAW), "cannot compile it", f"build: {RAW}"),
        (Side(ARTIFACT), Failure(Fault.REFUSED, "it needs avx512"), "refused: it needs avx512", ""),
    ],
)
def test_the_message_of_a_library_is_kept_apart_from_the_reason(
    side: Side, failure: Failure, reason: str, detail: str
) -> None:
    assert (failed(side, failure).reason, failed(side, failure).detail) == (reason, detail)
