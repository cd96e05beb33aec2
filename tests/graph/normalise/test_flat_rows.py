"""Products of more than three dimensions, and what follows them, on three: equal outputs under their own names."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from collage_evo.graph.normalise.normalise import normalise
from tests.support.normalised import assert_outputs_stay, shapes_in, written

LAYER = (
    "g (float[2,3,5,4] x) => (float[2,3,5,4] y)\n"
    "{ m = MatMul(x, w)  a = Add(b, m)  g = Gelu(a)  n = MatMul(g, v)  s = Mul(n, c)  y = Add(s, x) }"
)
SHARED = (
    "g (float[2,3,5,4] x) => (float[2,3,5,6] m, float[2,5,3,6] t)\n"
    "{ m = MatMul(x, w)  k = MatMul(x, w)  r = Relu(k)  q = Mul(r, m)  t = Transpose <perm = [0,2,1,3]> (q) }"
)
TALL = "g (float[2,3,5,4] x) => (float[2,3,5,6] y)\n{ m = MatMul(x, w)  y = Add(m, rows) }"
NORMALISED = (
    "g (float[2,3,5,4] x) => (float[2,3,5,6] y)\n"
    "{ l = LayerNormalization <axis = 3> (x, c1, c1)  m = MatMul(l, w)  y = Relu(m) }"
)
EMPTY = "g (float[2,0,5,4] x) => (float[2,0,5,6] y)\n{ y = MatMul(x, w) }"
SHORT = "g (float[2,5,4] x) => (float[2,5,6] y)\n{ y = MatMul(x, w) }"


def model(text: str) -> onnx.ModelProto:
    return written(text, {"w": (4, 6), "v": (6, 4), "b": (6,), "c": (1, 1, 4), "c1": (4,), "rows": (5, 1)})


@pytest.mark.parametrize("text", [LAYER, SHARED, TALL, NORMALISED, EMPTY, SHORT])
def test_the_outputs_stay_the_same(text: str) -> None:
    assert_outputs_stay(model(text))


def test_a_layer_is_reshaped_once_on_each_side() -> None:
    after = normalise(model(LAYER))
    kinds = Counter(node.op_type for node in after.graph.node)
    assert kinds == {"MatMul": 2, "Reshape": 2, "Add": 2, "Gelu": 1, "Mul": 1}
    assert {shapes_in(after)[node.output[0]] for node in after.graph.node if node.op_type == "MatMul"} == {
        (2, 15, 6),
        (2, 15, 4),
    }


def test_a_product_reads_normalised_rows() -> None:
    kinds = [node.op_type for node in normalise(model(NORMALISED)).graph.node]
    assert kinds == ["Reshape", "LayerNormalization", "MatMul", "Relu", "Reshape"]


def test_two_products_read_the_same_rows() -> None:
    reshapes = [node for node in normalise(model(SHARED)).graph.node if node.op_type == "Reshape"]
    assert len([node for node in reshapes if node.input[0] == "x"]) == 1


def test_what_differs_between_rows_stays_as_it_is() -> None:
    after = normalise(model(TALL))
    (last,) = [node for node in after.graph.node if node.op_type == "Add"]
    assert shapes_in(after)[last.output[0]] == (2, 3, 5, 6)


def test_sequences_stay_as_they_are() -> None:
    assert [node.op_type for node in normalise(model(SHORT)).graph.node] == ["MatMul"]
