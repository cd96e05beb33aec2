"""A LayerNormalization that was written out becomes one operator, and only what is one."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from collage_evo.graph.normalise.normalise import normalise
from tests.support.normalised import assert_outputs_stay, written

TWO = "two = Constant <value = float {2.0}> ()"
EPS = "eps = Constant <value = float {0.001}> ()"


def layer(
    mean: str = "ReduceMean <axes = [-1]>", square: str = "Pow(off, two)", scaled: str = "Mul(div, s)",
    sum_: str = "Add(scaled, b)", opset: int = 13,
) -> onnx.ModelProto:  # fmt: skip
    """Over float[2,3,4]."""
    call = "(x)" if "axes" in mean else "(x, last)"
    again = call.replace("x", "square")
    last = "" if "axes" in mean else "last = Constant <value = int64[1] {-1}> ()"
    return written(
        f"g (float[2,3,4] x) => (float[2,3,4] y)\n{{ {TWO} {EPS} {last} m = {mean}{call} off = Sub(x, m) "
        f"square = {square} v = {mean}{again} ve = Add(v, eps) sd = Sqrt(ve) div = Div(off, sd) "
        f"scaled = {scaled} y = {sum_} }}",
        {"s": (4,), "b": (4,), "rows": (3, 1)},
        opset,
    )


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    "model",
    [
        layer(),
        layer(square="Mul(off, off)"),
        layer(scaled="Mul(s, div)", sum_="Add(b, scaled)"),
        layer(mean="ReduceMean <axes = [2]>"),
        layer(mean="ReduceMean", opset=18),
    ],
)
def test_it_becomes_one_operator(model: onnx.ModelProto) -> None:
    assert kinds(normalise(model)) == ["LayerNormalization"]
    assert_outputs_stay(model)


@pytest.mark.parametrize(
    "model",
    [
        layer(mean="ReduceMean <axes = [1]>"),
        layer(square="Pow(off, eps)"),
        layer(scaled="Mul(div, rows)"),
        layer(sum_="Add(scaled, x)"),
    ],
)
def test_what_is_none_stays(model: onnx.ModelProto) -> None:
    assert "LayerNormalization" not in kinds(normalise(model))
