"""Random inputs are such that a model accepts them, and its results show errors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from tests.support.models import tiny_convnet, tiny_transformer


def test_inputs_depend_on_the_seed_only() -> None:
    first, again, other = (random_inputs(tiny_convnet(), seed)["x"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.float32
    assert first.shape == (1, 3, 16, 16)


@pytest.mark.parametrize("shape", [[2**62], [2**40, 2**40], [2**45]])
def test_a_shape_that_no_memory_holds_is_named(shape: list[int]) -> None:
    net = Builder("large")
    model = net.model(net.op("Relu", net.input("x", (1,))))
    with pytest.raises(InputError, match=r"'x' of shape .* does not fit into memory"):
        random_inputs(model, 0, {"x": shape})


def test_a_graph_and_its_model_get_the_same_inputs() -> None:
    model = tiny_transformer()
    np.testing.assert_array_equal(
        random_inputs(model, 3)["ids"], random_inputs(build_graph_of(model), 3)["ids"]
    )


def build_graph_of(model: onnx.ModelProto) -> Graph:
    return build_graph(normalise(model))


def test_indices_stay_below_the_smallest_table() -> None:
    net = Builder("tables")
    ids = net.input("ids", (1, 400), TensorProto.INT64)
    wide = net.op("Gather", net.const(np.zeros((90, 4), np.float32)), ids)
    moved = net.op("Cast", net.op("Reshape", ids, net.ints(1, 400)), to=TensorProto.INT32)
    narrow = net.op("Gather", net.const(np.zeros((4, 7), np.float32)), moved, axis=1)
    values = random_inputs(net.model(wide, narrow), 0)["ids"]
    assert values.min() == 0
    assert values.max() == 6


def test_masks_are_zeros_and_ones_and_never_empty() -> None:
    net = Builder("mask")
    mask = net.input("mask", (3, 50), TensorProto.INT64)
    flag = net.input("flag", (), TensorProto.BOOL)
    feeds = random_inputs(net.model(net.op("Cast", mask, to=1), net.op("Not", flag)), 0)
    assert set(np.unique(feeds["mask"])) == {0, 1}
    assert feeds["mask"].any(axis=1).all()
    assert feeds["flag"].dtype == np.bool_
    assert feeds["flag"].shape == ()


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


def test_a_mask_that_hides_by_a_large_number_stays_a_mask() -> None:
    net = Builder("mask")
    mask = net.op("Sub", net.const(np.float32(1)), net.op("Cast", net.input("m", (1, 90), TensorProto.INT64), to=1))
    feeds = random_inputs(net.model(net.op("Mul", mask, net.const(np.float32(-1e4)))), 0)
    assert set(np.unique(feeds["m"])) == {0, 1}


def test_half_precision_inputs_have_their_own_type() -> None:
    net = Builder("half")
    feeds = random_inputs(net.model(net.op("Relu", net.input("x", (2,), TensorProto.FLOAT16))), 0)
    assert feeds["x"].dtype == np.float16


def test_dynamic_inputs_need_shapes_and_sequences_values() -> None:
    net = Builder("dynamic")
    model = net.model(net.op("Relu", net.input("x", ("n", 3))))
    with pytest.raises(InputError, match="'x' has a dynamic shape"):
        random_inputs(model, 0)
    assert random_inputs(model, 0, {"x": (2, 3)})["x"].shape == (2, 3)
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model.graph.input.append(sequence)
    with pytest.raises(InputError, match="'s' is no tensor: only models whose inputs are tensors can run"):
        random_inputs(model, 0, {"x": (2, 3)})


def test_strings_and_bytes_have_values_of_their_type() -> None:
    net = Builder("text")
    text = net.op("Identity", net.input("x", (2,), TensorProto.STRING))
    feeds = random_inputs(net.model(text, net.op("Cast", net.input("b", (999,), TensorProto.UINT8), to=1)), 0)
    assert feeds["x"].dtype.kind == "U"
    assert len(set(feeds["b"])) > 99


def test_strings_that_are_cast_are_numbers() -> None:
    net = Builder("text")
    relayed = net.op("Reshape", net.input("x", (1, 9), TensorProto.STRING), net.ints(9))
    feeds = random_inputs(net.model(net.op("Cast", relayed, to=TensorProto.FLOAT)), 0)
    assert np.isfinite(feeds["x"].astype(np.float32)).all()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_truth_value_is_drawn_both_ways(shape: tuple[int, ...]) -> None:
    net = Builder("flag")
    model = net.model(net.op("Not", net.input("use_cache_branch", shape, TensorProto.BOOL)))
    assert {bool(random_inputs(model, seed)["use_cache_branch"].all()) for seed in range(16)} == {False, True}


def test_the_depth_of_a_one_hot_bounds_its_indices() -> None:
    net = Builder("onehot")
    ids = net.input("ids", (1, 300), TensorProto.INT64)
    hot = net.op("OneHot", ids, net.const(np.array(9)), net.const(np.array([0.0, 1.0], np.float32)))
    values = random_inputs(net.model(hot), 0)["ids"]
    assert (values.min(), values.max()) == (0, 8)
