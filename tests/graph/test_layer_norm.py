"""A LayerNormalization that was written out becomes one operator, and only what is one."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from collage_evo.graph.normalise import normalise
from collage_evo.graph.reference import Reference

OLD, NEW = '<ir_version: 7, opset_import: ["" : 13]>\n', '<ir_version: 8, opset_import: ["" : 18]>\n'
TWO = "two = Constant <value = float {2.0}> ()"
EPS = "eps = Constant <value = float {0.001}> ()"


def written(
    mean: str = "ReduceMean <axes = [-1]>", square: str = "Pow(off, two)", scaled: str = "Mul(div, s)",
    sum_: str = "Add(scaled, b)", head: str = OLD,
) -> onnx.ModelProto:  # fmt: skip
    """Over float[2,3,4]."""
    call = "(x)" if "axes" in mean else "(x, last)"
    again = call.replace("x", "square")
    last = "" if "axes" in mean else "last = Constant <value = int64[1] {-1}> ()"
    model = onnx.parser.parse_model(
        f"{head}g (float[2,3,4] x) => (float[2,3,4] y)\n{{ {TWO} {EPS} {last} m = {mean}{call} off = Sub(x, m) "
        f"square = {square} v = {mean}{again} ve = Add(v, eps) sd = Sqrt(ve) div = Div(off, sd) "
        f"scaled = {scaled} y = {sum_} }}"
    )
    rng = np.random.default_rng(0)
    read = {name for node in model.graph.node for name in node.input}
    for name, shape in (("s", (4,)), ("b", (4,)), ("rows", (3, 1))):
        if name in read:
            array = rng.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)}
    (made,), (right,) = Reference(after).run(feeds), Reference(before).run(feeds)
    np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        written(),
        written(square="Mul(off, off)"),
        written(scaled="Mul(s, div)", sum_="Add(b, scaled)"),
        written(mean="ReduceMean <axes = [2]>"),
        written(mean="ReduceMean", head=NEW),
    ],
)
def test_it_becomes_one_operator(model: onnx.ModelProto) -> None:
    after = normalise(model)
    assert kinds(after) == ["LayerNormalization"]
    same(model, after)


@pytest.mark.parametrize(
    "model",
    [
        written(mean="ReduceMean <axes = [1]>"),
        written(square="Pow(off, eps)"),
        written(scaled="Mul(div, rows)"),
        written(sum_="Add(scaled, x)"),
    ],
)
def test_what_is_none_stays(model: onnx.ModelProto) -> None:
    after = normalise(model)
    assert "LayerNormalization" not in kinds(after)
