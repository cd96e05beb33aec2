"""Random inputs are such that a model accepts them, and its results show errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from tests.support.models import parse_graph, tiny_transformer


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_inputs_depend_on_the_seed_only(kind: int) -> None:
    net = Builder("seeds")
    model = net.model(net.op("Relu", net.input("x", (2, 3), kind)))
    first, again, other = (random_inputs(model, seed)["x"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert (first.dtype, first.shape) == (helper.tensor_dtype_to_np_dtype(kind), (2, 3))


@pytest.mark.parametrize("shape", [[2**62], [2**40, 2**40], [2**45]])
def test_a_shape_that_no_memory_holds_is_named(shape: list[int]) -> None:
    net = Builder("large")
    model = net.model(net.op("Relu", net.input("x", (1,))))
    with pytest.raises(InputError, match=r"'x' of shape .* does not fit into memory"):
        random_inputs(model, 0, {"x": shape})


def test_a_graph_and_its_model_get_the_same_inputs() -> None:
    model = tiny_transformer()
    graph = build_graph(normalise(model))
    np.testing.assert_array_equal(random_inputs(model, 3)["ids"], random_inputs(graph, 3)["ids"])


def zeros(count: int) -> str:
    return ", ".join("0" * count)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            f"(int64[1, 400] x) => (float y, float z) <float[9] wide = {{{zeros(9)}}}, "
            f"float[1, 7] narrow = {{{zeros(7)}}}, int64[2] s = {{1, 400}}> "
            "{ y = Gather(wide, x) r = Reshape(x, s) m = Cast<to = 6>(r) "
            "z = Gather<axis = 1>(narrow, m) }",
            range(7),
        ),
        ("(int64[1, 300] x) => (float y) <int64 d = {9}, float[2] v = {0, 1}> { y = OneHot(x, d, v) }", range(9)),
        ("(int64[300, 2] x) => (float y) { y = Cast<to = 1>(x) }", (0, 1)),
        (
            "(int64[1, 90] x) => (float y) <float one = {1}, float far = {-10000}> "
            "{ c = Cast<to = 1>(x) m = Sub(one, c) y = Mul(m, far) }",
            (0, 1),
        ),
        ("(uint8[9999] x) => (float y) { y = Cast<to = 1>(x) }", range(256)),
        (
            "(string[1, 99] x) => (float y) <int64[1] s = {99}> { r = Reshape(x, s) y = Cast<to = 1>(r) }",
            ("0", "1", "17", "2"),
        ),
        ("(string[99] x) => (string y) { y = Identity(x) }", ("a", "some text", "word")),
    ],
)
def test_values_are_those_that_the_operators_behind_take(text: str, values: Sequence[object]) -> None:
    """Indices are below the smallest table; a mask is not all zero, also where it hides by a large number."""
    drawn = random_inputs(parse_graph(f"g {text}"), 0)["x"]
    assert np.unique(drawn).tolist() == list(values)
    assert values != (0, 1) or drawn.any(axis=1).all()


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.UINT8])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_whole_divisors_are_never_zero(op: str, kind: int) -> None:
    net = Builder("divisors")
    x, z = (net.input(name, (400,), kind) for name in "xz")
    model = net.model(net.op(op, x, net.op("Reshape", z, net.ints(400))))
    feeds = random_inputs(model, 0)
    assert set(np.unique(np.abs(feeds["z"].astype(int)))) == set(range(1, 10))
    assert (feeds["z"] < 0).any() == (kind == TensorProto.INT32)
    (made,) = reference_outputs(model, feeds)
    assert made.shape == (400,)


SECONDS = 1751063842


@pytest.mark.parametrize(
    ("kind", "steps", "centre", "spread"),
    [
        (TensorProto.DOUBLE, [("Sub", float(SECONDS)), ("Div", 86400.0)], SECONDS, 86400),
        (TensorProto.INT64, [("Div", 1000), ("Sub", SECONDS)], 1000 * SECONDS, 1000),
        (TensorProto.DOUBLE, [("Less", 2.0**53)], 2**53, 1),
        (TensorProto.FLOAT, [("Add", 300.0), ("Mul", 4.0)], -300, 0.25),
        (TensorProto.INT64, [("Div", 86400000)], 0, 86400000),
        (TensorProto.FLOAT, [("Sub", 123.7), ("Div", 58.4)], 0, 1),
        (TensorProto.DOUBLE, [("Sub", [1e9, -300.0]), ("Div", [10.0, 0.5])], [1e9, -300], [10, 0.5]),
    ],
)
def test_numbers_lie_near_the_constants_that_would_hide_them(
    kind: int, steps: list[tuple[str, float]], centre: float, spread: float
) -> None:
    net = Builder("far")
    x = net.input("x", (900, 2), kind)
    value = x
    for op, constant in steps:
        value = net.op(op, value, net.const(np.array(constant, helper.tensor_dtype_to_np_dtype(kind))))
    drawn = (random_inputs(net.model(value), 0)["x"].astype(np.float64) - centre) / spread
    assert np.abs(drawn.mean(axis=0)).max() < 0.3
    assert 0.7 < drawn.std(axis=0).min() <= drawn.std(axis=0).max() < 1.3


def test_dynamic_inputs_need_shapes_and_sequences_values() -> None:
    net = Builder("dynamic")
    model = net.model(net.op("Relu", net.input("x", ("n", 3))))
    with pytest.raises(InputError, match="'x' has a dynamic shape"):
        random_inputs(model, 0)
    assert random_inputs(model, 0, {"x": (2, 3)})["x"].shape == (2, 3)
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    with pytest.raises(InputError, match="'s' is no tensor: only models whose inputs are tensors can run"):
        random_inputs(model, 0, {"x": (2, 3)})


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_truth_value_is_drawn_both_ways(shape: tuple[int, ...]) -> None:
    net = Builder("flag")
    model = net.model(net.op("Not", net.input("use_cache_branch", shape, TensorProto.BOOL)))
    drawn = [random_inputs(model, seed)["use_cache_branch"] for seed in range(16)]
    assert {(value.dtype, value.shape) for value in drawn} == {(np.dtype(bool), shape)}
    assert {bool(value.all()) for value in drawn} == {False, True}
