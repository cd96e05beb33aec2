"""Where sizes depend on data, OpenVINO takes what runs for all of them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.backends.base import Built
from collage_evo.backends.registry import get_backend
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from tests.backends.pieces import build, loaded

OPENVINO = get_backend("openvino")
PLACES = 8
ONES = np.ones((1, 3), np.float32)
Make = Callable[[Builder, str], str]


def flattened(shape: list[int]) -> Make:
    return lambda b, found: b.op("Reshape", found, b.ints(*shape))


def images(b: Builder, found: str) -> str:
    """A picture of 4 by 4 for each that was found."""
    rows = b.op("Tile", b.op("Transpose", found, perm=[1, 0]), b.ints(1, 16))
    pictures = b.op("Reshape", rows, b.ints(-1, 1, 4, 4))
    return b.op("Conv", pictures, b.const(np.ones((2, 1, 3, 3), np.float32)))


def centred(b: Builder, found: str) -> str:
    return b.op("Sub", found, b.op("ReduceMean", found, b.ints(1), keepdims=1))


def within_a_branch(b: Builder, found: str) -> str:
    """Both branches refuse all but three."""
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    threes = helper.make_tensor("threes", TensorProto.FLOAT, [1, 3], [1.0, 2.0, 3.0])
    node = helper.make_node("Add", [found, "threes"], ["r"])
    body = helper.make_graph([node], "branch", [], [result], [threes])
    flag = b.op("Greater", b.input("flag", (1,)), b.const(np.zeros(1, np.float32)))
    return b.op("If", flag, then_branch=body, else_branch=body)


TOTAL: dict[str, Make] = {
    "function of itself": lambda b, found: b.op("Mul", found, b.op("Sigmoid", found)),
    "less its mean": centred,
    "row": flattened([-1]),
    "column times row": lambda b, found: b.op("MatMul", b.op("Transpose", found, perm=[1, 0]), b.const(ONES)),
    "beside itself": lambda b, found: b.op("Concat", found, b.op("Neg", found), axis=0),
    "after others": lambda b, found: b.op("Concat", b.const(ONES), found, axis=1),
    "cut": lambda b, found: b.op("Slice", found, b.ints(1), b.ints(3), b.ints(1)),
    "pictures": images,
}
PARTIAL: dict[str, Make] = {
    "rows of three": flattened([3, -1]),
    "sum with three": lambda b, found: b.op("Add", found, b.const(ONES)),
    "beside three": lambda b, found: b.op("Concat", found, b.const(ONES), axis=0),
    "product by three": lambda b, found: b.op("MatMul", found, b.const(np.ones((3, 2), np.float32))),
    "the three greatest": lambda b, found: b.ops("TopK", found, b.ints(3), outputs=2, axis=1)[0],
    "the only one": lambda b, found: b.op("Squeeze", found, b.ints(1)),
    "split": lambda b, found: b.ops("Split", found, b.ints(1, 2), outputs=2, axis=1)[1],
    "in a branch": within_a_branch,
}


def model(make: Make) -> onnx.ModelProto:
    """Places of what is not zero, what ``make`` does with them, and its sum."""
    b = Builder("found")
    found = b.op("Cast", b.op("NonZero", b.input("x", (PLACES,))), to=TensorProto.FLOAT)
    return b.model(b.op("ReduceSum", make(b, found), keepdims=0))


def requests() -> list[np.ndarray]:
    return [(np.arange(PLACES) < count).astype(np.float32) for count in (3, 1, 5, 0, PLACES, 3)]


@pytest.mark.parametrize("name", TOTAL)
def test_what_is_taken_runs_for_every_size(name: str, tmp_path: Path) -> None:
    made = model(TOTAL[name])
    assert isinstance(build(OPENVINO, made, tmp_path), Built)
    piece, reference = loaded(OPENVINO, made, tmp_path), Reference(made)
    for x in requests():
        np.testing.assert_allclose(piece.run([x])[0], reference.run({"x": x})[0], rtol=1e-5, atol=1e-5)


def test_a_size_that_is_a_number_behind_an_identity_is_no_size_that_depends_on_data(tmp_path: Path) -> None:
    b = Builder("identity")
    x = b.input("x", (2, 12))
    rows = b.op("Slice", b.op("Identity", b.op("Shape", x)), b.ints(0), b.ints(1))
    squares = b.op("Reshape", x, b.op("Concat", rows, b.ints(3, 4), axis=0))
    made = b.model(b.op("Add", squares, b.const(np.ones((2, 3, 4), np.float32))))
    assert isinstance(build(OPENVINO, made, tmp_path), Built)


@pytest.mark.parametrize("name", PARTIAL)
def test_what_some_sizes_do_not_fit_is_declined(name: str, tmp_path: Path) -> None:
    failure = build(OPENVINO, model(PARTIAL[name]), tmp_path)
    assert not isinstance(failure, Built)
    assert "sizes that depend on data" in failure.reason
