"""Summary of a run: what decides its verdict, and what it keeps if there is too much to tell."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage_evo.accuracy.invariance import Invariance, Movement
from collage_evo.report.advice import advice
from collage_evo.report.console import PlainConsole
from collage_evo.report.finished import Finished
from collage_evo.report.places import COMMAND
from collage_evo.report.result import InvarianceResult, Latency, Result, Speedup
from collage_evo.report.sizes import LatencyBySize
from collage_evo.report.summary import LINES, WIDTH, summary, verdict, verdict_of_profiles
from collage_evo.report.terminal import print_summary
from tests.support.results import result

RUN = Path("runs/detector")
WON, SWITCHED, KEPT, MICROSECONDS = map(result, ("placement_won", "switched", "kept", "microseconds"))
USUAL, OPENVINO = WON.libraries
ITSELF, UNSURE = Speedup(1.0, 1.0, 1.0, (), by_definition=True), Speedup(1.3, 0.9, 1.9, (1.2, 1.4))
SLOWER = Speedup(0.5, 0.4, 0.6, (0.5,))
ITS_OWN = replace(OPENVINO, speedup=ITSELF)
MOVED = Invariance(batch=Movement(0.1, 0.05))
BY_CALL = MICROSECONDS.libraries


def end(given: Result, **changes: Any) -> str:
    """The summary of ``given`` with ``changes``, in one line."""
    return " ".join(" ".join(summary([Finished({}, replace(given, **changes))], RUN)).split())


@pytest.mark.parametrize(
    ("given", "changes", "sentence"),
    [
        (WON, {"speedup_over_best_single": UNSURE}, "Use the artifact: it won an earlier comparison, and this one "
         "does not decide: 1.30 times as fast as OpenVINO in bfloat16, the best baseline."),
        (SWITCHED, {"libraries": (replace(USUAL, speedup=UNSURE, keeps=False), ITS_OWN)}, "Switch to OpenVINO with "
         "its defaults: 1.30 times as fast as ONNX Runtime, which exceeds the budget."),
        (SWITCHED, {"libraries": (replace(USUAL, speedup=UNSURE), ITS_OWN)}, "Switch to OpenVINO with its defaults: "
         "it won an earlier comparison, and this one does not decide: 1.30 times as fast as ONNX Runtime."),
        (SWITCHED, {"libraries": (ITS_OWN,)}, "Switch to OpenVINO with its defaults: the fastest that was measured, "
         "and ONNX Runtime had no part in the final comparison."),
        (SWITCHED, {"best": Latency("best", 0.02), "call_ms": 0.05, "libraries": (BY_CALL[0], ITS_OWN)},
         "Switch to OpenVINO with its defaults: 2.85 times as fast as ONNX Runtime."),
        (MICROSECONDS, {"call_ms": 0.004}, "Use the artifact: 1.25 times as fast as OpenVINO in bfloat16, the best "
         "baseline."),
        (MICROSECONDS, {"libraries": (BY_CALL[0], replace(BY_CALL[1], keeps=False))}, "Use the artifact: 1.25 times "
         "as fast as OpenVINO in bfloat16, the best baseline."),
        (KEPT, {"libraries": (replace(USUAL, speedup=ITSELF), replace(OPENVINO, speedup=SLOWER, keeps=False))},
         "Keep ONNX Runtime: nothing within the budget is proved faster."),
        (KEPT, {"libraries": ()}, "Keep ONNX Runtime: nothing that was measured is proved faster."),
        (WON, {"front": [replace(point, feasible=False) for point in WON.front]}, "Keep what you have: nothing that "
         "was measured meets the budget."),
        (WON, {"accuracy": replace(WON.accuracy, error_held_out=0.02)}, "Keep what you have: nothing that was "
         "measured meets the budget."),
    ],
    ids=["earlier", "usual breaks the budget", "earlier library", "no usual", "library needs no session",
         "wins more than the call", "over one that breaks", "faster breaks", "no libraries", "breaks on search",
         "breaks on held-out"],
)  # fmt: skip
def test_verdict(given: Result, changes: Mapping[str, Any], sentence: str) -> None:
    assert verdict(replace(given, **changes)) == sentence
    assert end(given, **changes).startswith(sentence)


TRIED = {"candidate_speedup": Speedup(1.72, 0.75, 3.95, (1.62, 1.73, 1.82))}
NOT_PROVED = "not proved faster: the best placement, 1.72 times (0.750 to 3.95) as fast as"
LEVEL = [replace(KEPT.front[1], latency_ms=6.5), replace(KEPT.front[1], raced=False)]
LEVEL += [replace(KEPT.front[1], feasible=False)]
ALONE = replace(WON.placement[1], backend="onnxruntime")
SIMPLIFIED = "ONNX Runtime in float32 on the simplified graph (8 operators to 6)"
ON_GRAPH = {"placement": [ALONE], "best_single": "onnxruntime"}


@pytest.mark.parametrize(
    ("given", "changes", "words", "there"),
    [
        (SWITCHED, TRIED, f"{NOT_PROVED} OpenVINO in bfloat16 in 3 rounds of the final comparison", True),
        (WON, TRIED, "not proved faster", False),
        (SWITCHED, {"candidate_speedup": ITSELF}, "not proved faster", False),
        (SWITCHED, {}, "not proved faster", False),
        (WON, ON_GRAPH, SIMPLIFIED, True),
        (WON, {**ON_GRAPH, "answer": "onnxruntime"}, "simplified", False),
        (WON, {**ON_GRAPH, "best_single": "ncnn", "libraries": (OPENVINO,)}, "simplified", False),
        *((KEPT, {"front": [KEPT.front[0], other]}, "with its defaults, the best baseline", True) for other in LEVEL),
        (MICROSECONDS, {"call_ms": 0.0005}, "detector on 2 threads: 0.0200 ms ", True),
        (MICROSECONDS, {"call_ms": None}, "detector on 2 threads: 0.0200 ms ", True),
        (WON, {"speedup_over_best_single": replace(OPENVINO.speedup, level=0.95),
               "libraries": (replace(OPENVINO, speedup=replace(OPENVINO.speedup, level=0.95)),)},
         "(95 % interval 1.07 to 1.45)", True),
        (WON, {"accuracy": replace(WON.accuracy, invariance=InvarianceResult(MOVED, MOVED))},
         "a row moves by up to 0.1 in a batch, float32 by 0.1", True),
    ],
)  # fmt: skip
def test_details(given: Result, changes: Mapping[str, Any], words: str, there: bool) -> None:
    assert (words in end(given, **changes)) is there


def test_a_summary_that_is_too_long_keeps_error_speedup_and_what_the_times_hold_for() -> None:
    cpu = "Some(R) Processor With a Long Name, held to avx2"
    held = {"target": {**WON.target, "held": "avx2"}, "environment": {**WON.environment, "cpu": cpu}}
    others = [replace(OPENVINO, name=f"other{number}") for number in range(9)]
    text = end(WON, **held, libraries=[*others, *WON.libraries], accuracy=MICROSECONDS.accuracy)
    assert text.count("with its defaults") < len(others)
    for words in ("error 0.0", "budget 0.01", "), the best baseline", "on Some(R)", "The machine changed"):
        assert words in text


def test_a_summary_that_is_too_long_keeps_advice_before_notes() -> None:
    notes = ("This processor does not compute in bfloat16, so only float32 and int8 took part",) * 4
    full = replace(SWITCHED, accuracy=replace(SWITCHED.accuracy, notes=notes))
    text = end(full)
    assert f"Next: {advice(full, RUN)[0]}" in text
    assert text.count("does not compute in bfloat16") < len(notes)


def test_profiles_have_one_verdict_and_as_many_lines_as_fit() -> None:
    assert verdict_of_profiles([KEPT]) == verdict(KEPT)
    assert verdict_of_profiles([WON, WON]) == "Use the artifact, for all 2 profiles of input shapes."
    lines = summary([Finished({"x": [1, 3, size, size]}, WON) for size in range(32, 32 * 30, 32)], RUN)
    assert len(lines) <= LINES
    assert len(lines[0]) <= WIDTH
    assert any("more, in the report" in line for line in lines)


def test_commands_are_of_the_run_that_an_answer_was_picked_from() -> None:
    place = Path("my runs/detector/picked/0.01")
    text = "\n".join((*advice(SWITCHED, place), *summary([Finished({}, SWITCHED)], place)))
    assert f"{COMMAND} pick 'my runs/detector' --budget" in text
    assert f"{COMMAND} export 'my runs/detector/picked/0.01' --to FOLDER" in text


@pytest.mark.parametrize("given", [SWITCHED, WON])
def test_a_command_has_a_line_of_its_own_on_a_narrow_terminal(given: Result) -> None:
    place = Path("a folder", *(f"deeper-{k:03d}" for k in range(20)))
    console = PlainConsole(file=io.StringIO(), width=40, record=True)
    print_summary([Finished({}, given)], place, console)
    lines = [line for line in console.export_text().splitlines() if COMMAND in line]
    assert len(lines) >= 2
    assert all(line.startswith(f"    {COMMAND}") and f"'{place}'" in line for line in lines)


def test_a_placement_that_is_slower_at_a_size_is_named() -> None:
    why = "ONNX Runtime in int8 is not the answer: at length 512 OpenVINO in float32 is 1.30 times as fast"
    assert f"any size {why}" in end(KEPT, by_size=LatencyBySize("length", (), "any size", (why, "another")))


def test_an_open_answer_of_onnx_runtime_alone_is_one_file() -> None:
    sizes, parts = LatencyBySize("length", (), "any size"), [replace(WON.placement[0], backend="onnxruntime")]
    assert "any size exported, it is one file, model.onnx, for ONNX Runtime in any language" in end(
        WON, by_size=sizes, placement=parts
    )
    assert "one file" not in end(WON, placement=parts), "which has a fall-back beside it"
    assert "one file" not in end(WON, by_size=sizes, placement=[*parts, *WON.placement])
    assert "one file" not in end(KEPT, by_size=sizes, placement=parts), "the user has that one"
    large = replace(WON.serving[0], name="best", disk_bytes=2**32)
    assert "one file" not in end(WON, by_size=sizes, placement=parts, serving=[large])
