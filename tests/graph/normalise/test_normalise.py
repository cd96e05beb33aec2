"""normalise gives an equal, plainer model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.normalise.normalise import Rules, normalise
from collage_evo.models.builder import Builder
from tests.graph.helpers import difference
from tests.support.models import chain, parse_graph, random_dag, tiny_branchy, tiny_convnet, tiny_transformer


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("make", [tiny_convnet, tiny_branchy, tiny_transformer, lambda: chain(3)])
def test_tiny_models_keep_their_outputs(make: Callable[[], onnx.ModelProto]) -> None:
    model = make()
    before = model.SerializeToString(deterministic=True)
    assert max(difference(model, normalise(model), seed) for seed in (0, 1)) < 1e-5
    assert model.SerializeToString(deterministic=True) == before


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 20))
def test_random_models_keep_their_outputs(seed: int, n: int) -> None:
    model = random_dag(seed, n)
    plain = normalise(model)
    assert difference(model, plain) < 1e-5
    assert [value.name for value in plain.graph.output] == [value.name for value in model.graph.output]


def test_equal_outputs_keep_their_names() -> None:
    net = Builder("equal")
    x = net.input("x", (2, 3))
    model = net.model(net.op("Relu", x, output="a"), net.op("Relu", x, output="b"), net.op("Identity", x))
    plain = normalise(model)
    assert [value.name for value in plain.graph.output] == ["a", "b", "Identity_0_out"]
    assert difference(model, plain) == 0.0
    build_graph(plain)


def test_batch_normalisation_goes_into_the_convolution() -> None:
    assert "BatchNormalization" not in kinds(normalise(tiny_convnet()))


@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_scale_after_convolution_or_norm_is_folded(constant_first: bool, bias: bool, norm: bool) -> None:
    net = Builder("scale")
    x = net.input("x", (1, 3, 6, 6))
    if norm:
        x = net.op("Relu", x)
        parts = [net.const(values) for values in (*weights(3, 3), np.ones(3, np.float32))]
        x = net.op("BatchNormalization", x, *parts)
    else:
        extra = [net.const(weights(3))] if bias else []
        x = net.op("Conv", x, net.const(weights(3, 3, 3, 3)), *extra)
    # The axes of the second are a constant subgraph, as converters leave it.
    for op_type, constant in (
        ("Mul", net.const(weights(1, 3, 1, 1))),
        ("Add", net.op("Unsqueeze", net.const(weights(3)), net.ints(1, 2))),
    ):
        x = net.op(op_type, *((constant, x) if constant_first else (x, constant)))
    model = net.model(net.op("Relu", x, output="y"))
    plain = normalise(model)
    assert kinds(plain) == (["Relu", "BatchNormalization", "Relu"] if norm else ["Conv", "Relu"])
    assert difference(model, plain) < 1e-5


@pytest.mark.parametrize("shared", [False, True])
def test_a_scale_along_another_axis_or_of_a_shared_convolution_stays(shared: bool) -> None:
    net = Builder("stay")
    x = net.op("Conv", net.input("x", (1, 3, 5, 5)), net.const(weights(3, 3, 1, 1)))
    y = net.op("Mul", x, net.const(weights(3, 1, 1) if shared else weights(1, 1, 1, 5)), output="y")
    model = net.model(y, *([net.op("Relu", x, output="z")] if shared else []))
    plain = normalise(model)
    assert sorted(kinds(plain)) == ["Conv", "Mul", *(["Relu"] if shared else [])]
    assert difference(model, plain) < 1e-5


def test_layers_that_share_a_weight_are_scaled_apart() -> None:
    net = Builder("shared_weight")
    x, weight = net.input("x", (1, 3, 5, 5)), net.const(weights(3, 3, 1, 1))
    for factor in (2.0, 3.0):
        x = net.op("Mul", net.op("Conv", x, weight), net.const(np.full((3, 1, 1), factor, np.float32)))
    model = net.model(x)
    plain = normalise(model)
    assert kinds(plain) == ["Conv", "Conv"]
    assert difference(model, plain) < 1e-5


def test_large_constant_subgraphs_are_folded() -> None:
    net = Builder("fold")
    table = net.op("Transpose", net.const(weights(400, 300)), perm=[1, 0])
    table = net.op("Add", table, net.op("Expand", net.const(weights(1, 1)), net.ints(300, 400)))
    model = net.model(net.op("MatMul", net.input("x", (2, 300)), table, output="y"))
    plain = normalise(model)
    assert kinds(plain) == ["MatMul"]
    assert len(plain.graph.initializer) == 1


def test_reshape_targets_computed_from_shapes_become_constants() -> None:
    net = Builder("flat")
    x = net.input("x", (2, 3, 4))
    batch = net.op("Slice", net.op("Shape", x), net.ints(0), net.ints(1))
    y = net.op("Reshape", net.op("Relu", x), net.op("Concat", batch, net.ints(-1), axis=0), output="y")
    graph = build_graph(normalise(net.model(y)))
    assert [node.op_type for node in graph.nodes] == ["Relu", "Reshape"]
    assert graph.nodes[1].inputs[1] in graph.constants


def test_identity_dropout_and_dead_nodes_go_and_sum_becomes_add() -> None:
    net = Builder("idle")
    x = net.input("x", (2, 3))
    net.op("Sigmoid", x)
    y = net.op("Dropout", net.op("Identity", x), net.const(np.array(0.5, np.float32)))
    y = net.op("Relu", net.op("Sum", y, net.op("Tanh", x)))
    plain = normalise(net.model(net.op("Identity", y, output="y")))
    assert sorted(kinds(plain)) == ["Add", "Relu", "Tanh"]
    assert not plain.graph.initializer


def test_an_input_that_is_an_output_gets_an_identity() -> None:
    net = Builder("through")
    x = net.input("x", (2, 3))
    model = net.model(net.op("Relu", x, output="y"), net.op("Identity", x, output="z"))
    graph = build_graph(normalise(model))
    assert graph.outputs == ("y", "z")
    assert graph.producer.keys() == {"y", "z"}


@pytest.mark.parametrize("opset", [9, 13, 18, 21])
def test_old_opsets_are_raised_and_new_ones_stay(opset: int) -> None:
    text = "c = Conv(x, w) r = Relu(c) f = Reshape(r, s) y = Softmax<axis = 1>(f)"
    model = parse_graph(f"g (float[1, 3, 8, 8] x) => (float y) <int64[2] s = {{1, -1}}> {{ {text} }}", opset, 9)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.append(numpy_helper.from_array(weights(4, 3, 3, 3), "w"))
    plain = normalise(model)
    assert plain.opset_import[0].version == max(opset, 18)
    assert difference(model, plain) < 1e-6
    assert build_graph(plain).tensors["y"].shape == (1, 144)


def test_weights_listed_as_inputs_are_constants() -> None:
    model = tiny_convnet()
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    plain = normalise(model)
    assert [value.name for value in plain.graph.input] == ["x"]
    assert difference(model, plain) < 1e-5


def test_a_constant_output_is_computed_by_an_identity() -> None:
    net = Builder("constant")
    fixed = net.op("Neg", net.const(np.ones(3, np.float32)), output="fixed")
    model = net.model(net.op("Relu", net.input("x", (3,)), output="y"), fixed)
    plain = normalise(model)
    assert sorted(kinds(plain)) == ["Identity", "Relu"]
    assert difference(model, plain) == 0.0


@pytest.mark.parametrize("rules", list(Rules))
def test_with_fewer_rules_a_model_is_still_equal(rules: Rules) -> None:
    model = tiny_convnet()
    plain = normalise(model, rules)
    assert difference(model, plain) < 1e-5
    assert ("BatchNormalization" in kinds(plain)) == (rules is not Rules.ALL)


def test_an_empty_roi_or_scales_of_a_resize_becomes_absent() -> None:
    net = Builder("resize")
    empty = net.const(np.zeros(0, np.float32))
    sizes = net.ints(1, 3, 12, 12)
    y = net.op("Resize", net.input("x", (1, 3, 6, 6)), empty, empty, sizes, output="y", mode="nearest")
    model = net.model(y, opset=11)
    plain = normalise(model)
    assert [list(node.input)[1:3] for node in plain.graph.node] == [["", ""]]
    assert difference(model, plain) == 0.0


def test_an_input_that_is_an_output_stays_one() -> None:
    model = parse_graph("g (float[4] x) => (float[4] x, float[4] y) { h = Relu(x) i = Relu(x) y = Add(h, i) }")
    for rules in Rules:
        plain = normalise(model, rules)
        assert [value.name for value in plain.graph.output] == ["x", "y"]
        assert build_graph(plain).boundary(build_graph(plain).all_nodes) == (("x",), ("y",))
