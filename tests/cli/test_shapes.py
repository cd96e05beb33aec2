"""``--shapes`` as people type it; what is wrong with it is told in their words."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.cli.shapes import shape_values
from collage_evo.errors import ConfigError
from collage_evo.graph.load.load import ModelFile


def file_of(folder: Path, **inputs: list[int | str]) -> ModelFile:
    """A model that adds its inputs, of these declared shapes."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    output = helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Sum", list(inputs), ["sum"])], "sum", values, [output])
    onnx.save(helper.make_model(graph), folder / "sum.onnx")
    return ModelFile(str(folder / "sum.onnx"))


def shapes(folder: Path, text: str, **inputs: list[int | str]) -> Any:
    return shape_values(text, file_of(folder, **inputs))["shapes"]


@pytest.mark.parametrize("text", ["ids: [1, 64]", "{ids: [1, 64]}", '{"ids": [1, 64]}', "[1, 64]", " [1,64] "])
def test_names_may_be_left_out_where_one_input_alone_is_open(tmp_path: Path, text: str) -> None:
    assert shapes(tmp_path, text, ids=["batch", "length"], table=[1, 64]) == {"ids": [1, 64]}
    assert shapes(tmp_path, "[[1, 64], [8, 64]]", ids=["n", "l"]) == {"ids": [[1, 64], [8, 64]]}


DECODER: dict[str, list[int | str]] = {"ids": [1, "sequence"], "key": [1, 4, "past", 64], "scale": [1]}


def test_symbolic_dimensions_give_the_shapes_of_all_inputs_that_have_them(tmp_path: Path) -> None:
    assert shapes(tmp_path, "sequence: 1, past: 0", **DECODER) == {"ids": [1, 1], "key": [1, 4, 0, 64]}
    two = shapes(tmp_path, "sequence: [128, 1], past: [0, 128]", **DECODER)
    assert two == {"ids": [[1, 128], [1, 1]], "key": [[1, 4, 0, 64], [1, 4, 128, 64]]}
    mixed = shapes(tmp_path, "sequence: [128, 1], past: 7, ids: [1, 3]", **DECODER)
    assert mixed == {"ids": [1, 3], "key": [1, 4, 7, 64]}


def test_ranges_keep_the_names_that_they_have(tmp_path: Path) -> None:
    assert shapes(tmp_path, "sequence: 1..512, past: 7", **DECODER) == {"sequence": "1..512", "past": 7}
    assert shapes(tmp_path, "[1..8, 1..64]", ids=["n", "l"]) == {"ids": ["1..8", "1..64"]}
    assert shapes(tmp_path, "ids: [1, 3, 32..640]", **DECODER) == {"ids": [1, 3, "32..640"]}


def test_without_shapes_the_model_is_not_read() -> None:
    nowhere = ModelFile("nowhere.onnx")
    assert shape_values("auto", nowhere) == {"sizes": "smallest"}
    assert shape_values(None, nowhere) == {}


TWO: dict[str, list[int | str]] = {"ids": ["n", "l"], "mask": ["n", "l"]}


@pytest.mark.parametrize(
    ("text", "inputs", "words"),
    [
        ("[1, 64]", TWO, ("--shapes [1, 64]", "name the inputs", "'ids: [1, 64], ...'", "mask: [n, l]")),
        ("ids [1, 64]", TWO, ("--shapes 'ids [1, 64]'", "as 'ids: [1, 64]'")),
        ("ids: [1, 64], ids: [2, 64]", TWO, ("--shapes", "second time")),
        ("ids: [1, -64]", TWO, ("--shapes", "ids is [1, -64]")),
        ("64", TWO, ("--shapes '64'",)),
        ("[1, 64", TWO, ("--shapes '[1, 64'",)),
        ("", TWO, ("--shapes ''",)),
        ("[1, 64]", {"ids": [1, 64]}, ("leaves no size open",)),
        ("sequence: 1", DECODER, ("give all sizes, or the shape, of key: [1, 4, past, 64]",)),
        ("sequence: [1, 2], past: [1, 2, 3]", DECODER, ("sequence has 2, past has 3",)),
        ("sequence: -1, past: 2", DECODER, ("ids is [1, -1]",)),
    ],
)
def test_what_is_wrong_is_told_with_what_was_typed(
    tmp_path: Path, text: str, inputs: dict[str, list[int | str]], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        shapes(tmp_path, text, **inputs)
    for word in words:
        assert word in str(refused.value)
    assert "model.shapes" not in str(refused.value)
