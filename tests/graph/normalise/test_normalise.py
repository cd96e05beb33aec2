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


@pytest.mark.parametrize(
    ("text", "opset", "expected"),
    [
        (
            "(float[1, 1, 2, 5] x) => (float y) <float[1, 1, 1, 1] w = {2}, float[5] s = {1, 2, 3, 4, 5}> "
            "{ c = Conv(x, w) y = Mul(c, s) }",
            18,
            ["Conv", "Mul"],
        ),
        (
            "(float[1, 1, 2, 5] x) => (float y, float z) <float[1, 1, 1, 1] w = {2}, float[1, 1, 1] s = {3}> "
            "{ c = Conv(x, w) y = Mul(c, s) z = Relu(c) }",
            18,
            ["Conv", "Mul", "Relu"],
        ),
        (
            "(float[1, 1, 2, 2] x) => (float y) "
            "<float[1, 1, 1, 1] w = {1.5}, float[1, 1, 1] two = {2}, float[1, 1, 1] three = {3}> "
            "{ a = Conv(x, w) b = Mul(a, two) c = Conv(b, w) y = Mul(c, three) }",
            18,
            ["Conv", "Conv"],
        ),
        (
            "(float[2, 3, 4] x) => (float y) <int64[1] o = {0}, int64[1] e = {1}, int64[1] rest = {-1}> "
            "{ s = Shape(x) b = Slice(s, o, e) t = Concat<axis = 0>(b, rest) r = Relu(x) y = Reshape(r, t) }",
            18,
            ["Relu", "Reshape"],
        ),
        (
            "(float[2, 3] x) => (float y) <float half = {0.5}> "
            "{ u = Sigmoid(x) i = Identity(x) d = Dropout(i, half) t = Tanh(x) s = Sum(d, t) r = Relu(s) "
            "y = Identity(r) }",
            18,
            ["Add", "Relu", "Tanh"],
        ),
        (
            "(float[3] x) => (float y, float fixed) <float[3] one = {1, 1, 1}> { fixed = Neg(one) y = Relu(x) }",
            18,
            ["Identity", "Relu"],
        ),
        ("(float[2, 3] x) => (float y, float z) { y = Relu(x) z = Identity(x) }", 18, ["Identity", "Relu"]),
        (
            '(float[1, 3, 6, 6] x) => (float y) <int64[4] s = {1, 3, 12, 12}> { e = Constant<value = float[0] {}>() '
            'y = Resize<mode = "nearest">(x, e, e, s) }',
            11,
            ["Resize"],
        ),
    ],
)
def test_an_equal_model_has_these_operators(text: str, opset: int, expected: list[str]) -> None:
    """A scale along another axis, or of what others read, stays; layers that share a weight are scaled apart; targets
    computed from shapes are constants; idle and dead operators go; an operator makes every output; an empty input of
    a Resize is absent."""
    model = onnx.shape_inference.infer_shapes(parse_graph(f"g {text}", opset))
    plain = normalise(model)
    assert sorted(kinds(plain)) == expected
    assert difference(model, plain) < 1e-6
    assert {value.name for value in plain.graph.output} <= build_graph(plain).producer.keys()
    assert not {tensor.name for tensor in plain.graph.initializer if 0 in tensor.dims} & {*plain.graph.node[0].input}


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


def test_large_constant_subgraphs_are_folded() -> None:
    net = Builder("fold")
    table = net.op("Transpose", net.const(weights(400, 300)), perm=[1, 0])
    table = net.op("Add", table, net.op("Expand", net.const(weights(1, 1)), net.ints(300, 400)))
    plain = normalise(net.model(net.op("MatMul", net.input("x", (2, 300)), table, output="y")))
    assert kinds(plain) == ["MatMul"]
    assert len(plain.graph.initializer) == 1


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


@pytest.mark.parametrize("rules", list(Rules))
def test_with_fewer_rules_a_model_is_still_equal(rules: Rules) -> None:
    model = tiny_convnet()
    plain = normalise(model, rules)
    assert difference(model, plain) < 1e-5
    assert ("BatchNormalization" in kinds(plain)) == (rules is not Rules.ALL)


def test_an_input_that_is_an_output_stays_one() -> None:
    model = parse_graph("g (float[4] x) => (float[4] x, float[4] y) { h = Relu(x) i = Relu(x) y = Add(h, i) }")
    for rules in Rules:
        plain = normalise(model, rules)
        assert [value.name for value in plain.graph.output] == ["x", "y"]
        assert build_graph(plain).boundary(build_graph(plain).all_nodes) == (("x",), ("y",))
