"""Images of one column, and what follows their convolutions, as images of one row: equal outputs."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from collage_evo.graph.normalise.normalise import normalise
from tests.support.normalised import assert_outputs_stay, shapes_in, written

LAYERS = (
    "g (float[2,3,20,1] x) => (float[2,4,4,1] y)\n"
    "{ c = Conv <pads = [2,0,1,0], dilations = [2,1]> (x, w, b)  r = Relu(c)  m = Mul(r, scale)\n"
    "  n = PRelu(m, slope)  p = MaxPool <kernel_shape = [2,1], strides = [2,1]> (n)\n"
    "  d = Conv <auto_pad = \"SAME_UPPER\", group = 4> (p, v)  s = Add(d, p)\n"
    "  y = AveragePool <kernel_shape = [3,1], strides = [2,3], pads = [1,0,0,0], ceil_mode = 1> (s) }"
)
PLACES = "g (float[2,3,20,1] x) => (float[2,4,17,1] y)\n{ c = Conv(x, w, b)  y = Mul(c, places) }"
SHARED = (
    "g (float[2,3,20,1] x) => (float[2,4,17,1] y, float[2,4,17,1] c)\n"
    "{ c = Conv(x, w)  d = Conv(x, w)  r = Relu(d)  y = Add(r, c) }"
)
BOTH = (
    "g (float[2,3,20,1] x) => (float[2,4,17,1] y, float[2,3,20,5] z, float[2,4,17,1] r)\n"
    "{ y = Conv(x, w, b)  m = MatMul(x, wide)  k = Conv(x, w_row)  z = Mul(m, m)  r = Relu(k) }"
)
WIDE = "g (float[2,3,20,2] x) => (float[2,4,17,2] y)\n{ y = Conv(x, w, b) }"
POINTS = "g (float[2,4,20,1] x) => (float[2,4,20,1] y)\n{ c = Conv(x, u)  y = Relu(c) }"
GIVEN = "g (float[2,3,20,1] x, float[4] k) => (float[2,4,17,1] y)\n{ y = Conv(x, w, k) }"


def model(text: str) -> onnx.ModelProto:
    weights = {"w": (4, 3, 4, 1), "w_row": (4, 3, 4, 1), "v": (4, 1, 5, 1), "u": (4, 4, 1, 1), "b": (4,)}
    others = {"scale": (4, 1, 1), "slope": (1, 1, 1), "places": (17, 1), "wide": (1, 5)}
    return written(text, weights | others)


def heights(made: onnx.ModelProto) -> dict[str, set[int]]:
    """What kinds of operators make, by their third axis."""
    known, found = shapes_in(made), dict[str, set[int]]()
    for node in made.graph.node:
        found.setdefault(node.op_type, set()).add(known[node.output[0]][2])
    return found


@pytest.mark.parametrize("text", [LAYERS, PLACES, SHARED, BOTH, WIDE, POINTS, GIVEN])
def test_the_outputs_stay_the_same(text: str) -> None:
    assert_outputs_stay(model(text))


def test_layers_along_a_column_are_of_one_row_between_two_reshapes() -> None:
    after = normalise(model(LAYERS))
    assert Counter(node.op_type for node in after.graph.node)["Reshape"] == 2
    others = {kind: found for kind, found in heights(after).items() if kind != "Reshape"}
    assert others.keys() >= {"Conv", "PRelu", "MaxPool", "Add", "AveragePool"}
    assert all(found == {1} for found in others.values())


def test_what_differs_from_place_to_place_stays_on_a_column() -> None:
    found = heights(normalise(model(PLACES)))
    assert found["Conv"] == {1}
    assert found["Mul"] == {17}


@pytest.mark.parametrize("text", [WIDE, POINTS, GIVEN])
def test_other_convolutions_stay_as_they_are(text: str) -> None:
    assert "Reshape" not in {node.op_type for node in normalise(model(text)).graph.node}
