"""The verdict of a run: one sentence, first of all, by what the final comparison proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from collage_evo.report.result import Finished, FrontPoint, Latency, Result, Speedup
from collage_evo.report.summary import WIDTH, summary, verdict, verdict_of_profiles
from tests.report.test_summary import ITSELF, ONNXRUNTIME, OPENVINO, RUN, broken, chosen, mixed, nothing_won

UNSURE = Speedup(1.3, 0.9, 1.9, (1.2, 1.4))


def keep() -> Result:
    """ONNX Runtime with its defaults is the answer, though another library looked faster."""
    libraries = (replace(ONNXRUNTIME, speedup=ITSELF), replace(OPENVINO, speedup=UNSURE))
    return replace(nothing_won(), answer="onnxruntime", best_single="onnxruntime", libraries=libraries)


def not_proved() -> Result:
    """Another library stays the answer, and is not proved faster than ONNX Runtime again."""
    libraries = (replace(ONNXRUNTIME, speedup=UNSURE), replace(OPENVINO, speedup=ITSELF))
    return replace(nothing_won(), libraries=libraries)


def without_usual() -> Result:
    """ONNX Runtime could not run the model, or was too slow to race."""
    return replace(nothing_won(), libraries=nothing_won().libraries[1:])


def usual_breaks() -> Result:
    """ONNX Runtime is not proved slower, but exceeds the budget."""
    libraries = (replace(ONNXRUNTIME, speedup=UNSURE, keeps=False), replace(OPENVINO, speedup=ITSELF))
    return replace(nothing_won(), libraries=libraries)


def held() -> Result:
    """A mixture that won before stays the answer without another proof."""
    return replace(mixed(), speedup_over_best_single=UNSURE)


def over_on_search() -> Result:
    """A mixture whose error is over the budget on the samples of the search."""
    return replace(mixed(), front=[replace(point, feasible=False) for point in mixed().front])


def throughput() -> Result:
    return replace(mixed(), objective="throughput")


def of_microseconds() -> Result:
    """A mixture of 20 microseconds beside a library of 25 and one of 57, whose call takes 5."""
    libraries = (replace(ONNXRUNTIME, latency_ms=0.057), replace(OPENVINO, latency_ms=0.025))
    return replace(mixed(), best=Latency("best", 0.02), libraries=libraries, call_ms=0.005)


def wins_by_the_call() -> Result:
    return replace(of_microseconds(), call_ms=0.004)


def exported() -> Result:
    """The call makes up for the gain, and one library runs it all."""
    return replace(of_microseconds(), placement=[replace(mixed().placement[0], backend="openvino", variant="bf16")])


def beside_what_breaks() -> Result:
    """The library that the call makes up for exceeds the budget."""
    slow, fast = of_microseconds().libraries
    return replace(of_microseconds(), libraries=(slow, replace(fast, keeps=False)))


def itself() -> Result:
    """A library with its defaults: a person calls it without any session of this package."""
    libraries = (replace(ONNXRUNTIME, latency_ms=0.057), replace(OPENVINO, latency_ms=0.02, speedup=ITSELF))
    return replace(nothing_won(), best=Latency("best", 0.02), libraries=libraries, call_ms=0.05)


def kept_within_the_budget() -> Result:
    """Another library is faster for certain, and exceeds the budget."""
    faster = replace(OPENVINO, speedup=Speedup(0.5, 0.4, 0.6, (0.5,)), keeps=False)
    return replace(keep(), libraries=(replace(ONNXRUNTIME, speedup=ITSELF), faster))


def older() -> Result:
    """Of a schema that knows no libraries with their defaults."""
    return replace(keep(), libraries=())


SENTENCES: dict[Callable[[], Result], str] = {
    mixed: "Use the artifact: 1.25 times as fast as OpenVINO in bfloat16, the best baseline.",
    throughput: "Use the artifact: 1.25 times the throughput of OpenVINO in bfloat16, the best baseline.",
    held: "Use the artifact: it won an earlier comparison, and this one does not decide: 1.30 times as fast as "
    "OpenVINO in bfloat16, the best baseline.",
    chosen: "Use the artifact: ncnn in float32 is 2.85 times as fast as ONNX Runtime.",
    nothing_won: "Switch to OpenVINO with its defaults: 2.85 times as fast as ONNX Runtime.",
    usual_breaks: "Switch to OpenVINO with its defaults: 1.30 times as fast as ONNX Runtime, which exceeds the "
    "budget.",
    without_usual: "Switch to OpenVINO with its defaults: the fastest that was measured, and ONNX Runtime had "
    "no part in the final comparison.",
    keep: "Keep ONNX Runtime: nothing that was measured is proved faster.",
    not_proved: "Switch to OpenVINO with its defaults: it won an earlier comparison, and this one does not decide: "
    "1.30 times as fast as ONNX Runtime.",
    of_microseconds: "Keep what you have: a call of the artifact's session adds 0.00500 ms, no less than the "
    "artifact wins over OpenVINO.",
    exported: "Export the answer: 1.25 times as fast as OpenVINO in bfloat16, the best baseline, in OpenVINO alone; "
    "a call of the artifact's session adds 0.00500 ms.",
    wins_by_the_call: "Use the artifact: 1.25 times as fast as OpenVINO in bfloat16, the best baseline.",
    beside_what_breaks: "Use the artifact: 1.25 times as fast as OpenVINO in bfloat16, the best baseline.",
    itself: "Switch to OpenVINO with its defaults: 2.85 times as fast as ONNX Runtime.",
    kept_within_the_budget: "Keep ONNX Runtime: nothing within the budget is proved faster.",
    older: "Keep ONNX Runtime: nothing that was measured is proved faster.",
    broken: "Keep what you have: nothing that was measured meets the budget.",
    over_on_search: "Keep what you have: nothing that was measured meets the budget.",
}


@pytest.mark.parametrize("made", SENTENCES)
def test_the_first_line_of_a_run_s_end_is_its_verdict(made: Callable[[], Result]) -> None:
    result = made()
    assert verdict(result) == SENTENCES[made]
    text = " ".join(" ".join(summary([Finished({}, result)], RUN)).split())
    assert text.startswith(SENTENCES[made])


def test_what_is_kept_is_the_best_baseline_only_where_none_was_faster() -> None:
    point = FrontPoint(2.0, 1e-3, "", "alone", ("float16",), "openvino/f16", feasible=True, raced=True)
    front = [replace(point, latency_ms=2.2, single="onnxruntime", answer=True), point]
    level = replace(keep(), front=front)
    kept = " ".join(" ".join(summary([Finished({}, level)], RUN)).split())
    assert "with its defaults, which no baseline is proved faster than" in kept
    assert "the best baseline" not in kept
    for slower in (replace(point, latency_ms=2.3), replace(point, raced=False), replace(point, feasible=False)):
        told = " ".join(" ".join(summary([Finished({}, replace(level, front=[front[0], slower]))], RUN)).split())
        assert "with its defaults, the best baseline" in told


def test_several_profiles_have_one_verdict_that_counts_them() -> None:
    assert verdict_of_profiles([keep()]) == verdict(keep())
    same = verdict_of_profiles([mixed(), held()])
    assert same == "Use the artifact, for all 2 profiles of input shapes."
    different = [mixed(), keep(), mixed()]
    expected = "Use the artifact (2 of 3 profiles), keep ONNX Runtime (1 of 3 profiles)."
    assert verdict_of_profiles(different) == expected
    lines = summary([Finished({"x": [size]}, result) for size, result in enumerate(different)], RUN)
    assert lines[0] == expected
    assert len(lines[0]) <= WIDTH


def test_what_a_call_adds_is_in_the_time_where_it_counts() -> None:
    short = replace(mixed(), best=Latency("best", 0.02), call_ms=0.0013)
    lines = summary([Finished({}, short)], RUN)
    assert "detector on 2 threads: 0.0213 ms by session.run, 0.00130 of them for the call" in lines
    for other in (replace(short, call_ms=0.0005), replace(short, call_ms=None)):
        assert "detector on 2 threads: 0.0200 ms" in summary([Finished({}, other)], RUN)
