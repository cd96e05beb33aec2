"""What people read in place of names of the inside: times, libraries by their own names, failures as sentences."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_evo.accuracy.budget import checked_budget
from collage_evo.backends.base import BuildFailure
from collage_evo.fitness.compile.compiler import unbuilt
from collage_evo.genome.failure import Failure, Fault
from collage_evo.report.words import (
    Part,
    describe_failure,
    describe_parts,
    describe_request,
    describe_unfit,
    format_ms,
    format_name,
    format_number,
    format_ratio,
    format_shapes,
    format_time,
    in_words,
)
from collage_evo.search.evolution.origin import Origin

THREE = [Part("ncnn", "default", 20), Part("openvino", "bf16", 30, {"int8": 4}), Part("ncnn", "default", 30)]


@pytest.mark.parametrize(
    ("words", "values", "expected"),
    [
        (format_ms, (0.0712, 0.07, 3.994, 12.34, 99.96, 1234.5), "0.0712 0.0700 3.99 12.3 100 1234"),
        (format_ms, (None,), "-"),
        (format_ratio, (1.0, 0.953), "1.00 0.953"),
        (format_number, (0.01723, 0.02, 0.0, 3.84e-7, -0.0012, None), "0.017 0.02 0 3.8e-07 -0.0012 not known"),
        (format_time, (0.2, 42.0, 170.0, 7200.0), "1 s 42 s 3 min 2.0 h"),
        (describe_request, (checked_budget("35dB"), 0.02, "1%", "exact"), "0.01778 0.02 1% exact"),
        (format_name, ("onnxruntime", "onnxruntime/nchw"), "ONNX Runtime in float32 ONNX Runtime in float32 (nchw)"),
        (format_name, ("openvino/bf16", "nobody/x"), "OpenVINO in bfloat16 nobody in float32 (x)"),
        (
            lambda precisions: describe_parts([Part.of("openvino", "bf16", precisions)]),
            (["int8"] * 56 + ["bfloat16"] * 183, ["int8"] * 3),
            "OpenVINO in bfloat16 with 56 of 239 operators in int8 OpenVINO in int8",
        ),
        *(
            (lambda text: in_words(Origin.parse(text)), (text,), words)
            for text, words in {
                "seed:dp": "the fastest by the measured times of its regions",
                "seed:single:openvino/default": "as many operators as possible in openvino",
                "seed:greedy:tvm,ncnn": "each operator in the first library that takes it, of tvm, ncnn",
                "rewritten:ncnn": "operators written in another way that computes the same, in ncnn",
                "crossover": "two fast ones combined",
            }.items()
        ),
        (
            describe_parts,
            (THREE,),
            "ncnn in float32 (50 of 80 operators) and OpenVINO in bfloat16 (30 operators, 4 of them in int8), "
            "in 3 regions",
        ),
    ],
)
def test_figures_libraries_and_parts_are_written_as_people_write_them(words, values, expected: str) -> None:
    assert " ".join(map(words, values)) == expected


@given(st.floats(1e-4, 1e6))
def test_two_times_that_are_told_alike_differ_by_less_than_a_percent(ms: float) -> None:
    told = format_ms(ms)
    assert re.fullmatch(r"[\d.]+", told)
    assert float(told) == pytest.approx(ms, rel=0.0051)


def test_the_message_of_a_library_is_kept_apart_from_what_the_user_reads() -> None:
    failure = unbuilt(BuildFailure("tvm: InternalError: Check failed: (msgs[i].IsNested()) is false", raw=True))
    assert describe_failure(failure, "tvm") == "TVM cannot compile it"
    assert failure.detail.startswith("tvm: InternalError")


def test_a_reason_that_is_meant_for_people_stays() -> None:
    failure = unbuilt(BuildFailure("ncnn: the converter does not know the operator NonMaxSuppression"))
    told = "ncnn cannot compile it: the converter does not know the operator NonMaxSuppression"
    assert (describe_failure(failure, "ncnn"), failure.detail) == (told, "")


def test_a_variant_that_was_not_tried_is_told_from_its_library() -> None:
    failure = Failure(Fault.NEEDLESS, "without convolutions, nchw is no other than default")
    told = describe_failure(failure, "onnxruntime", "nchw")
    assert told.startswith("ONNX Runtime in float32 (nchw) was not tried: ")


def test_what_this_program_declines_is_not_said_of_the_library() -> None:
    failure = unbuilt(BuildFailure("openvino: Mod: it computes in 32 bits", declined=True))
    told = "OpenVINO takes no part, as this program declines it: Mod: it computes in 32 bits"
    assert describe_failure(failure, "openvino") == told
    assert "cannot compile" in describe_failure(unbuilt(BuildFailure("openvino: no kernel")), "openvino")


def test_every_kind_of_failure_has_words_and_those_that_differ_in_figures_only_are_one_row() -> None:
    assert all(describe_failure(Failure(fault, ""), "tvm").startswith("TVM ") for fault in Fault)
    late = [Failure(Fault.FAR_BEHIND, f"predicted {ms} ms, not measured") for ms in range(16)]
    assert list(describe_unfit([*late, Failure(Fault.CRASH, "killed by SIGSEGV")]).values()) == [16, 1]


def test_of_many_inputs_with_equal_shapes_the_first_is_named() -> None:
    cache = {f"past.{k}": [1, 4, 128, 64] for k in range(48)}
    shapes = {"ids": [1, 1], "positions": [1, 1], **cache, "text": None}
    assert format_shapes(shapes) == "ids [1, 1], positions [1, 1], past.0 and 47 more [1, 4, 128, 64], text any"
