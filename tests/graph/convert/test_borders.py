"""A model's inputs and outputs under other names: it computes the same, whatever names there are inside."""

from __future__ import annotations

import numpy as np
import onnx

from collage_evo.graph.convert.borders import with_border_names
from collage_evo.graph.reference.reference import reference_outputs
from tests.support.models import parse_graph, tiny_convnet

X = {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)}


def test_inputs_and_outputs_get_their_names_in_order_and_the_model_stays() -> None:
    model = tiny_convnet()
    before = model.SerializeToString()
    renamed = with_border_names(model, ["image"], ["scores"])
    np.testing.assert_array_equal(reference_outputs(renamed, {"image": X["x"]})[0], reference_outputs(model, X)[0])
    assert [value.name for value in (*renamed.graph.input, *renamed.graph.output)] == ["image", "scores"]
    assert model.SerializeToString() == before


def test_a_tensor_inside_that_has_such_a_name_gets_another() -> None:
    model = tiny_convnet()
    inside = model.graph.node[0].output[0]
    renamed = with_border_names(model, [inside], [model.graph.initializer[0].name])
    np.testing.assert_array_equal(reference_outputs(renamed, {inside: X["x"]})[0], reference_outputs(model, X)[0])


def test_bodies_read_the_input_under_its_new_name() -> None:
    bodies = [f"{op} () => (float[2] a) {{ a = {op}(x) }}" for op in ("Neg", "Identity")]
    choice = f"y = If(c) <then_branch = {bodies[0]}, else_branch = {bodies[1]}>"
    model = parse_graph(f"g (bool c, float[2] x) => (float[2] y) {{ {choice} }}", opset=18)
    renamed = with_border_names(model, ["a", "b"], ["out"])
    onnx.checker.check_model(renamed)
    feeds = {"a": np.array(True), "b": np.array([1, 2], np.float32)}
    np.testing.assert_array_equal(reference_outputs(renamed, feeds)[0], [-1, -2])
