"""What people read in place of names of the inside: times in three digits, libraries by their own names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_evo.accuracy.budget import checked_budget
from collage_evo.report.words import (
    Part,
    describe_parts,
    describe_request,
    format_ms,
    format_name,
    format_number,
    format_ratio,
    format_time,
)


@pytest.mark.parametrize(
    ("ms", "told"),
    [(0.0712, "0.0712"), (0.07, "0.0700"), (3.994, "3.99"), (12.34, "12.3"), (99.96, "100"), (1234.5, "1234")],
)
def test_a_time_has_three_digits_that_mean_something(ms: float, told: str) -> None:
    assert format_ms(ms) == told


@given(st.floats(1e-4, 1e6))
def test_two_times_that_are_told_alike_differ_by_less_than_a_percent(ms: float) -> None:
    told = format_ms(ms)
    assert re.fullmatch(r"[\d.]+", told)
    assert float(told) == pytest.approx(ms, rel=0.0051)


def test_what_was_not_timed_is_a_dash() -> None:
    assert format_ms(None) == "-"


@pytest.mark.parametrize(
    ("error", "told"),
    [(0.01723, "0.017"), (0.02, "0.02"), (0.0, "0"), (3.84e-7, "3.8e-07"), (-0.0012, "-0.0012"), (None, "not known")],
)
def test_an_error_is_written_as_a_budget_is(error: float | None, told: str) -> None:
    assert format_number(error) == told


def test_libraries_have_their_own_names_and_say_in_which_way_they_compute_if_there_are_several() -> None:
    assert format_name("onnxruntime") == "ONNX Runtime in float32"
    assert format_name("onnxruntime/nchw") == "ONNX Runtime in float32 (nchw)"
    assert format_name("openvino/bf16") == "OpenVINO in bfloat16"
    assert format_name("nobody/knows-it") == "nobody in float32 (knows-it)"


def test_one_library_that_mixes_precisions_says_how_many_operators_are_in_which() -> None:
    whole = Part.of("openvino", "bf16", ["int8"] * 56 + ["bfloat16"] * 183)
    assert describe_parts([whole]) == "OpenVINO in bfloat16 with 56 of 239 operators in int8"
    assert describe_parts([Part.of("openvino", "bf16", ["int8"] * 3)]) == "OpenVINO in int8"
    assert describe_parts([Part.of("ncnn", "default", ["float32"])]) == "ncnn in float32"


def test_several_libraries_come_in_the_order_of_how_much_they_run() -> None:
    parts = [Part("ncnn", "default", 20), Part("openvino", "bf16", 30, {"int8": 4}), Part("ncnn", "default", 30)]
    assert describe_parts(parts) == (
        "ncnn in float32 (50 of 80 operators) and OpenVINO in bfloat16 (30 operators, 4 of them in int8), in 3 pieces"
    )


def test_lengths_of_time_are_told_as_a_person_waits() -> None:
    assert [format_time(seconds) for seconds in (0.2, 42.0, 170.0, 7200.0)] == ["1 s", "42 s", "3 min", "2.0 h"]


def test_ratios_near_one_keep_two_decimals() -> None:
    assert format_ratio(1.0) == "1.00"
    assert format_ratio(0.953) == "0.953"


def test_a_budget_in_decibels_is_told_in_few_digits() -> None:
    assert describe_request(checked_budget("35dB")) == "0.01778"
    assert (describe_request(0.02), describe_request("1%"), describe_request("exact")) == ("0.02", "1%", "exact")
