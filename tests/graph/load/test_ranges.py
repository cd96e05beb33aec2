"""Open shapes from what users write, and from their samples."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.errors import InputError
from collage_evo.graph.load.open_shapes import Dimension
from collage_evo.graph.load.ranges import shapes_in_ranges, shapes_of_samples
from collage_evo.hardware.memory import usable_memory


def model(**inputs: list[int | str | None] | None) -> onnx.ModelProto:
    """A model that adds its inputs, of these declared shapes."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    output = helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)
    return helper.make_model(
        helper.make_graph([helper.make_node("Sum", list(inputs), ["sum"])], "g", values, [output])
    )


ENCODER = model(ids=["batch", "sequence"], mask=["batch", "sequence"])
UNNAMED = model(ids=[None, None], mask=[None, None])
IMAGES = model(x=["batch", 3, "height", "width"])


def in_ranges(of: onnx.ModelProto, **sizes: Any) -> dict[str, list[str]]:
    """The dimensions of each input, with their names."""
    found = shapes_in_ranges(of, sizes).inputs
    return {name: [f"{one.name} {one}".strip() for one in several] for name, several in found.items()}


def test_ranges_have_the_names_of_the_file_s_dimensions() -> None:
    both = ["batch 1..8", "sequence 1..512"]
    assert in_ranges(ENCODER, sequence="1..512", batch="1..8") == {"ids": both, "mask": both}
    assert in_ranges(ENCODER, sequence="1..512", batch=1)["ids"] == ["batch 1", "sequence 1..512"]
    assert in_ranges(IMAGES, batch=1, height="32..640/32", width="32..640") == {
        "x": ["batch 1", "3", "height 32..640/32", "width 32..640"]
    }
    decoder = model(ids=[1, "sequence"], past=[1, 4, "past", 64])
    assert in_ranges(decoder, sequence="1..8", **{"past": [1, 4, "1..512", 64]})["past"][2] == "past 1..512", (
        "an input's name"
    )


def test_ranges_of_an_input_hold_for_others_with_the_same_dimension() -> None:
    both = ["batch 1..8", "sequence 1..512"]
    assert in_ranges(ENCODER, ids=["1..8", "1..512"]) == {"ids": both, "mask": both}
    assert in_ranges(IMAGES, x=[1, 3, "32..640", 64])["x"] == ["batch 1", "3", "height 32..640", "width 64"]


def test_without_names_equal_ranges_in_the_same_place_are_one_dimension() -> None:
    found = in_ranges(UNNAMED, ids=["1..8", "1..512"], mask=["1..8", "1..512"])
    assert found == {name: ["ids[0] 1..8", "ids[1] 1..512"] for name in ("ids", "mask")}
    found = in_ranges(UNNAMED, ids=["1..8", "1..512"], mask=[1, "1..256"])
    assert found["mask"] == ["mask[0] 1", "mask[1] 1..256"]
    assert in_ranges(model(x=None), x=[1, "1..9"])["x"] == ["x[0] 1", "x[1] 1..9"]


def test_one_name_for_sizes_that_differ_is_two_dimensions() -> None:
    assert in_ranges(model(x=["n", "n"]), x=["1..8", "1..512"])["x"] == ["n 1..8", "x[1] 1..512"]


@pytest.mark.parametrize(
    ("of", "sizes", "message"),
    [
        (
            ENCODER,
            {"sequense": "1..512", "batch": 1},
            r"model\.shapes names 'sequense', which is no dimension of the model \(did you mean sequence\?\); "
            "they are: batch, sequence; its inputs are: ids, mask",
        ),
        (UNNAMED, {"n": "1..5"}, "none with a name; its inputs are: ids, mask"),
        (ENCODER, {"sequence": ["1..512"], "batch": 1}, r"model\.shapes: sequence: \['1..512'\] is no size: write"),
        (
            ENCODER,
            {"sequence": "1..512", "ids": [[1, 2]]},
            r"model\.shapes: ids: \[1, 2\] is no size: write a number",
        ),
        (ENCODER, {"sequence": "512..1", "batch": 1}, r"sequence: 512..1 is no range: .* as 1..512"),
        (ENCODER, {"ids": [1, "n"]}, r"ids: 'n' is no size: write a number, or a range as 1..512"),
        (ENCODER, {"ids": "1..512"}, r"gives 'ids' 1 dimensions \[1\], but the model has 2: \[batch, sequence\]"),
        (ENCODER, {"sequence": "1..512"}, r"lacks sizes of ids: \[batch, sequence\]: give a size or a range of each"),
        (UNNAMED, {"ids": ["1..8", "1..9"]}, r"lacks sizes of mask: \[\?, \?\]"),
        (model(x=None, y=["n"]), {"n": "1..9"}, r"lacks sizes of x: \[unknown rank\]"),
        (
            IMAGES,
            {"x": [1, "1..3", 64, 64]},
            r"the shape \[1, 1, 64, 64\], but .* keep the numbers that the model fix",
        ),
        (
            IMAGES,
            {"x": [1, "3..4", 64, 64]},
            r"the shape \[1, 4, 64, 64\], but .* keep the numbers that the model fix",
        ),
        (IMAGES, {"x": [1, "3..4", 64]}, r"'x' 3 dimensions \[1, 3, 64\], but the model has 4"),
        (
            ENCODER,
            {"sequence": "1..1000000000000", "batch": 1},
            r"allows ids \[1, 1000000000000\], which takes 3,725",
        ),
    ],
)
def test_what_the_model_does_not_take_is_named(of: onnx.ModelProto, sizes: dict[str, Any], message: str) -> None:
    assert usable_memory() < 4 * 10**12
    with pytest.raises(InputError, match=message) as refused:
        shapes_in_ranges(of, sizes)
    assert "\n" not in str(refused.value)


def test_samples_give_the_sizes_between_those_that_they_have() -> None:
    lengths = (7, 4, 250)
    samples = [{"ids": [1, n], "mask": [1, n]} for n in lengths]
    found = shapes_of_samples(ENCODER, samples).inputs
    assert found["ids"] == found["mask"] == (Dimension(1, 1, "batch"), Dimension(4, 250, "sequence"))
    assert shapes_of_samples(UNNAMED, samples).inputs["mask"][1] == Dimension(4, 250, "ids[1]")
    other = [{"ids": [1, n], "mask": [1, n + 1]} for n in lengths]
    assert shapes_of_samples(ENCODER, other).inputs["mask"][1] == Dimension(5, 251, "mask[1]")
    images = [{"x": [1, 3, 32, 64]}, {"x": [2, 3, 64, 32]}]
    assert [one.name for one in shapes_of_samples(IMAGES, images).inputs["x"]] == ["batch", "", "height", "width"]
