"""Where NaN and infinity have to be kept, what loses them takes no part: a piece, a whole model, an artifact."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from collage_evo.config import parse_config
from collage_evo.fitness.jobs import Measured, Setting
from collage_evo.fitness.references import nonfinite_references, read_references, write_references
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.load.inputs import random_inputs
from tests.fitness.helpers import checked, make_setting

GATHER = """(float[3] x) => (float[3] y) <float[2] table = {1, 2}> {
    low = Constant <value_float = 0.0> () zero = Mul(x, low)
    index = Cast <to = 7> (zero) y = Gather(table, index)
}"""
"""NaN and infinity become an index out of range."""


@pytest.fixture(scope="module")
def any_numbers(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """A convolution and a Relu, which OpenVINO makes one: NaN is zero behind it."""
    return make_setting(tmp_path_factory.mktemp("nonfinite"))


@pytest.fixture(scope="module")
def kept(any_numbers: Setting) -> Setting:
    files = any_numbers.files
    ((feeds, expected),) = read_references(files.reference)
    spoiled = nonfinite_references(onnx.load(files.original), feeds, (list(feeds), list(expected)), threads=1)
    write_references(files.nonfinite, spoiled)
    return replace(any_numbers, keeps_nonfinite=True)


def test_what_loses_them_takes_part_where_that_does_not_matter(any_numbers: Setting) -> None:
    assert not [answer for answer in checked(any_numbers, "openvino") if isinstance(answer, Failure)]


def test_what_loses_them_takes_no_part_where_it_does(kept: Setting) -> None:
    for answer in checked(kept, "openvino"):
        assert isinstance(answer, Failure)
        assert answer.fault is Fault.NOT_FINITE
        assert "verify.nonfinite" in answer.message


def test_what_keeps_them_is_timed_as_ever(kept: Setting) -> None:
    cost, whole, opened = checked(kept, "onnxruntime")
    assert isinstance(cost, Measured)
    assert isinstance(whole, Measured)
    assert not isinstance(opened, Failure)


def test_the_key_is_one_of_two_words() -> None:
    model: Mapping[str, Any] = {"model": {"source": "builtin:squeezenet"}}
    assert parse_config(model, ["verify.nonfinite=kept"], "a test").verify.nonfinite == "kept"


@pytest.mark.parametrize("text", ["(int64[3] x) => (int64[3] y) { y = Neg(x) }", GATHER])
def test_a_model_without_floats_or_that_takes_none_of_them_has_nothing_to_lose(tmp_path: Path, text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    pairs = nonfinite_references(model, random_inputs(model, 0), (["x"], ["y"]), threads=1)
    write_references(tmp_path / "none.npz", pairs)
    assert pairs == read_references(tmp_path / "none.npz") == []
