"""The verdict of a run: one sentence, first of all, by what the final comparison proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from collage_evo.report.result import Result, Speedup
from collage_evo.report.summary import WIDTH, Finished, summary
from collage_evo.report.verdict import verdict, verdict_of_profiles
from tests.report.test_summary import ITSELF, ONNXRUNTIME, OPENVINO, RUN, broken, chosen, mixed, nothing_won

UNSURE = Speedup(1.3, 0.9, 1.9, (1.2, 1.4))


def keep() -> Result:
    """ONNX Runtime with its defaults is the answer, though another library looked faster."""
    libraries = (replace(ONNXRUNTIME, speedup=ITSELF), replace(OPENVINO, speedup=UNSURE))
    return replace(nothing_won(), answer="onnxruntime", best_single="onnxruntime", libraries=libraries)


def not_proved() -> Result:
    """Another library is the answer, and is not proved faster than ONNX Runtime."""
    libraries = (replace(ONNXRUNTIME, speedup=UNSURE), replace(OPENVINO, speedup=ITSELF))
    return replace(nothing_won(), libraries=libraries)


def without_usual() -> Result:
    """ONNX Runtime could not run the model, or was too slow to race."""
    return replace(nothing_won(), libraries=nothing_won().libraries[1:])


def usual_breaks() -> Result:
    """ONNX Runtime is not proved slower, but breaks the budget."""
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


def older() -> Result:
    """Of a schema that knows no libraries with their defaults."""
    return replace(keep(), libraries=())


SENTENCES: dict[Callable[[], Result], str] = {
    mixed: "Use the artifact: 1.25 times as fast as OpenVINO in bfloat16, the best library.",
    throughput: "Use the artifact: 1.25 times the throughput of OpenVINO in bfloat16, the best library.",
    held: "Use the artifact: it won an earlier comparison, and this one does not decide: 1.30 times as fast as "
    "OpenVINO in bfloat16, the best library.",
    chosen: "Use the artifact: ncnn in float32 is 2.85 times as fast as ONNX Runtime.",
    nothing_won: "Switch to OpenVINO with its defaults: 2.85 times as fast as ONNX Runtime.",
    usual_breaks: "Switch to OpenVINO with its defaults: 1.30 times as fast as ONNX Runtime, which breaks the "
    "budget.",
    without_usual: "Switch to OpenVINO with its defaults: the fastest that was measured, and ONNX Runtime had "
    "no part in the final comparison.",
    keep: "Keep ONNX Runtime: nothing that was measured is proved faster.",
    not_proved: "Keep ONNX Runtime: nothing that was measured is proved faster.",
    older: "Keep ONNX Runtime: nothing that was measured is proved faster.",
    broken: "Keep what you have: nothing that was measured keeps the budget.",
    over_on_search: "Keep what you have: nothing that was measured keeps the budget.",
}


@pytest.mark.parametrize("made", SENTENCES)
def test_the_first_line_of_a_run_s_end_is_its_verdict(made: Callable[[], Result]) -> None:
    result = made()
    assert verdict(result) == SENTENCES[made]
    text = " ".join(" ".join(summary([Finished({}, result)], RUN)).split())
    assert text.startswith(SENTENCES[made])


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
