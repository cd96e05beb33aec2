"""int8 by rows: what a row gives whatever is beside it, rows of any numbers, one rounding for all their readers."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.marks import written_in
from collage_evo.precision.quantise.rounded import usual_scales
from collage_evo.precision.transforms.edits import numerics_of
from collage_evo.precision.transforms.rows import Rows
from collage_evo.precision.transforms.sensitivity import error_sensitivities
from collage_evo.precision.transforms.transform import Data
from tests.support.numerics import writing_key, written_region

READ, MADE = 96, 80
SHARED = ("Abs", "ReduceMax", "Div", "QuantizeLinear")
"""Operators that round a tensor; a Mul does too, and one scales each result."""


def weights(read: int, made: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((read, made)) / math.sqrt(read)).astype(np.float32)


def net(*shape: int, opset: int = 18) -> Graph:
    """Two products of one input, the second a Gemm with a bias where there are two axes, and one of the first."""
    b, bias = Builder("rows"), np.linspace(-1, 1, MADE, dtype=np.float32)
    x = b.input("x", shape)
    first, other = b.op("MatMul", x, b.const(weights(READ, MADE, 0))), b.const(weights(READ, MADE, 1))
    turned = b.const(weights(READ, MADE, 1).T.copy())
    second = b.op("Gemm", x, turned, b.const(bias), transB=1) if len(shape) == 2 else b.op("MatMul", x, other)
    model = b.model(second, b.op("MatMul", b.op("Relu", first), b.const(weights(MADE, READ, 2))))
    model.opset_import[0].version = opset
    return build_graph(model)


def written(graph: Graph, nodes: int) -> onnx.ModelProto:
    return written_region(graph, graph.all_nodes, numerics_of((Arithmetic.INT8_ROWS, nodes)), {}, None)


def products(graph: Graph) -> int:
    return sum(1 << node.index for node in graph.nodes if node.op_type in ("MatMul", "Gemm"))


def run(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return list(reference_outputs(model, {"i0": x}, 1))


def rounded(rows: np.ndarray) -> np.ndarray:
    """float64: rows there and back through 127 steps from zero to the largest number of each."""
    largest = np.abs(rows).max(-1, keepdims=True).astype(np.float64)
    steps = np.rint(np.divide(rows * 127.0, largest, out=np.zeros(rows.shape), where=largest > 0))
    return np.asarray(steps * largest / 127)


def right(graph: Graph, index: int, rows: np.ndarray) -> np.ndarray:
    """What the product ``index`` of ``graph`` gives for ``rows``."""
    node = graph.nodes[index]
    exact, scales = graph.constants[node.inputs[1]], usual_scales(graph, node)
    exact = exact.T if node.op_type == "Gemm" else exact
    bias = graph.constants[node.inputs[2]] if len(node.inputs) > 2 else 0.0
    return np.asarray(rounded(rows) @ (np.rint(exact / scales).astype(np.float64) * scales) + bias)


shapes = st.one_of(
    st.tuples(st.integers(1, 9)), st.tuples(st.integers(1, 3), st.integers(1, 9)),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4)),
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    before=shapes,
    seed=st.integers(0, 99),
    size=st.sampled_from([1e-45, 1e-30, 1e-3, 1.0, 1e30]),
    opset=st.sampled_from([13, 18]),
)
def test_each_row_is_rounded_by_its_own_scale(before: tuple[int, ...], seed: int, size: float, opset: int) -> None:
    rng, graph = np.random.default_rng(seed), net(*before, READ, opset=opset)
    sizes = size * np.exp(3 * rng.standard_normal((*before, 1))) * (rng.random((*before, 1)) < 0.8)  # or zeros
    rows = (rng.standard_normal((*before, READ)) * sizes).astype(np.float32)
    places = [node.index for node in graph.nodes if node.inputs[0] == "x"]
    region = sum(1 << place for place in places)
    model = written_region(graph, region, numerics_of((Arithmetic.INT8_ROWS, region)), {}, None)
    onnx.checker.check_model(model)
    for place, found in zip(places, run(model, rows), strict=True):
        wanted = right(graph, place, rows)
        # A number halfway between two steps may go to either: one of 96 such, by one step.
        step = np.abs(rows).max(-1, keepdims=True) / 127 * np.abs(weights(READ, MADE, 0)).max()
        assert (np.abs(found - wanted) <= 2 * step + 1e-5 * np.abs(wanted) + 1e-35).all()
        zeros = ~rows.any(-1)
        np.testing.assert_array_equal(found[zeros], wanted[zeros].astype(np.float32))


def test_a_row_gives_the_same_alone_in_a_batch_and_beside_padding() -> None:
    sizes = np.geomspace(0.01, 50, 8).reshape(8, 1, 1)
    rows = (np.random.default_rng(0).standard_normal((8, 5, READ)) * sizes).astype(np.float32)
    graph = net(8, 5, READ)
    together = run(written(graph, products(graph)), rows)
    for place in range(8):
        alone = net(1, 5, READ)
        for one, several in zip(run(written(alone, products(alone)), rows[place : place + 1]), together, strict=True):
            np.testing.assert_allclose(one[0], several[place], rtol=1e-6, atol=1e-7)
    padded = np.concatenate([rows[:1], np.full((1, 3, READ), 1e3, np.float32)], axis=1)
    longer = net(1, 8, READ)
    for one, several in zip(run(written(longer, products(longer)), padded), together, strict=True):
        np.testing.assert_allclose(one[0, :5], several[0], rtol=1e-6, atol=1e-7)


def test_what_is_written_at_one_shape_holds_at_others() -> None:
    graph = net(2, 3, READ)
    model = written(graph, products(graph))
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for place, size in enumerate(value.type.tensor_type.shape.dim):
            if place < 2:
                size.dim_param = f"size {place}"
    rows = np.random.default_rng(0).standard_normal((4, 7, READ)).astype(np.float32)
    other = net(4, 7, READ)
    for found, wanted in zip(run(model, rows), run(written(other, products(other)), rows), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(4, READ), (2, 3, READ)])
def test_a_tensor_is_rounded_once_for_all_products_that_read_it(shape: tuple[int, ...]) -> None:
    graph = net(*shape)
    model = written(graph, products(graph))
    kinds = Counter(proto.op_type for proto in model.graph.node)
    assert [kinds[kind] for kind in SHARED] == [2] * len(SHARED)
    assert kinds["MatMulIntegerToFloat"] == 3
    assert kinds["Mul"] == 5
    assert not kinds["MatMul"] + kinds["Gemm"] + kinds["Reshape"]
    assert len({proto.name for proto in model.graph.node}) == len(model.graph.node)
    assert written_in(model, Arithmetic.INT8_ROWS) <= {proto.name for proto in model.graph.node}
    assert Counter(proto.op_type for proto in written(graph, 1).graph.node)["QuantizeLinear"] == 1


def test_keys_tell_places() -> None:
    graph = net(4, READ)
    kinds = Arithmetic.INT8_ROWS, Arithmetic.INT8_BLOCKS
    asked = [numerics_of((kind, nodes)) for kind in kinds for nodes in (1, 2)]
    assert len({writing_key(graph, graph.all_nodes, one, {}, None) for one in asked}) == len(asked)
    assert written(graph, 0b11).SerializeToString() == written(net(4, READ), 0b11).SerializeToString()


def test_infinity_is_not_lost() -> None:
    graph = net(4, READ)
    rows = np.random.default_rng(0).standard_normal((4, READ)).astype(np.float32)
    rows[1, 5] = np.inf
    for found in run(written(graph, products(graph)), rows):
        assert not np.isfinite(found[1]).any()
        assert np.isfinite(found[[0, 2, 3]]).all()


def test_small_products_single_rows_and_products_of_two_activations_are_left_out() -> None:
    def sites(read: int, made: int, rows: int = 4) -> int:
        b = Builder("sizes")
        x, z = b.input("x", (rows, read)), b.input("z", (read, made))
        graph = build_graph(b.model(b.op("MatMul", x, b.const(weights(read, made, 0))), b.op("MatMul", x, z)))
        return Rows(Arithmetic.INT8_ROWS).sites(graph, graph.all_nodes, Data())

    assert sites(256, 256) == 0b1
    assert sites(128, 128) == sites(1024, 64) == sites(256, 256, rows=1) == 0


def test_sensitivities_predict_the_error() -> None:
    b = Builder("chain")
    x = b.input("x", (16, 512))
    for seed in range(3):
        x = b.op("Relu", b.op("MatMul", x, b.const(weights(512, 512, seed))))
    graph = build_graph(b.model(x))
    feeds = random_inputs(graph, 0)
    predicted = error_sensitivities(graph, {}, [feeds])[Arithmetic.INT8_ROWS]
    assert [share > 0 for share in predicted] == [True, False] * 3
    exact, found = (run(written(graph, nodes), feeds["x"]) for nodes in (0, products(graph)))
    assert math.sqrt(sum(predicted)) == pytest.approx(relative_error(found, exact).relative, rel=0.3)
