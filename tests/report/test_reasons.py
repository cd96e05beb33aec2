"""Failures are sentences; what only a library's programmers understand is kept elsewhere."""

from __future__ import annotations

import pytest

from collage_evo.placement.failure import Failure, Fault
from collage_evo.report.words import describe_failure, describe_unfit, raw_words

RAW = (
    ("tvm", "tvm: InternalError: Check failed: (msgs[i].IsNested()) is false: Expected nested to match tuple"),
    ("ncnn", "ncnn: pnnx ended with -11: ############# pass_ncnn"),
    ("openvino", "openvino: Exception from src/core/src/runtime/tensor.cpp:91: x"),
)


@pytest.mark.parametrize(("backend", "message"), RAW)
def test_what_a_compiler_says_for_itself_is_a_sentence_and_kept_apart(backend: str, message: str) -> None:
    failure = Failure(Fault.BUILD, message)
    assert describe_failure(failure, backend).endswith(" cannot compile it")
    assert message in raw_words(failure, backend)


def test_a_reason_that_is_meant_for_people_stays() -> None:
    failure = Failure(Fault.BUILD, "ncnn: the converter does not know the operator NonMaxSuppression")
    told = "ncnn cannot compile it: the converter does not know the operator NonMaxSuppression"
    assert describe_failure(failure, "ncnn") == told
    assert raw_words(failure, "ncnn") == ""


@pytest.mark.parametrize("fault", Fault)
def test_every_kind_of_failure_has_words(fault: Fault) -> None:
    assert describe_failure(Failure(fault, ""), "tvm").startswith("TVM ")


def test_reasons_that_differ_in_figures_only_are_one_row() -> None:
    late = [Failure(Fault.FAR_BEHIND, f"predicted {ms} ms, not measured") for ms in range(16)]
    assert list(describe_unfit([*late, Failure(Fault.CRASH, "killed by SIGSEGV")]).values()) == [16, 1]
