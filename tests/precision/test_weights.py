"""Weights in int8: which products read them so, what they compute, and that it is predicted and told apart."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import PACKED, Arithmetic
from collage_evo.precision.quantise.marks import written_in
from collage_evo.precision.transforms.edits import numerics_of
from collage_evo.precision.transforms.piece import structure_text
from collage_evo.precision.transforms.sensitivity import error_sensitivities
from collage_evo.precision.transforms.transform import Data
from collage_evo.precision.transforms.weights import MOST_ROWS, Weights
from tests.precision.nets import rounded_weights
from tests.support.numerics import writing_key, written_region

INPUTS, OUTPUTS = 600, 512
WEIGHTS = (np.random.default_rng(0).standard_normal((INPUTS, OUTPUTS)) / 24).astype(np.float32)


def net(rows: int = 1, weights: np.ndarray = WEIGHTS, transposed: bool = False) -> Graph:
    """A product, and a Gemm with a bias behind it that reads the same weights transposed."""
    b = Builder("products")
    first = b.op("Relu", b.op("MatMul", b.input("x", (rows, len(weights))), b.const(weights)))
    if not transposed:
        return build_graph(b.model(first))
    bias = b.const(np.linspace(-1, 1, len(weights), dtype=np.float32))
    return build_graph(b.model(b.op("Gemm", first, b.const(weights), bias, transB=1)))


BOTH = net(transposed=True)
"""MatMul, Relu, Gemm: nodes 0 to 2."""


def written(graph: Graph, kind: Arithmetic, nodes: int) -> onnx.ModelProto:
    return written_region(graph, graph.all_nodes, numerics_of((kind, nodes)), {}, None)


def run(model: onnx.ModelProto, graph: Graph) -> list[np.ndarray]:
    return list(reference_outputs(model, {"i0": random_inputs(graph, 0)["x"]}, 1))


def packable(graph: Graph, nodes: int) -> int:
    return Weights(Arithmetic.INT8_WEIGHTS).sites(graph, nodes, Data())


def test_large_products_for_few_rows_are_bounded_by_their_weights() -> None:
    assert packable(BOTH, BOTH.all_nodes) == 0b101
    assert packable(net(MOST_ROWS), 0b11) == 0b1
    assert not packable(net(MOST_ROWS + 1), 0b11)
    assert not packable(net(weights=WEIGHTS[:64]), 0b11)


def test_weights_have_a_scale_for_each_output_and_the_rest_is_float32() -> None:
    model = written(BOTH, Arithmetic.INT8_WEIGHTS, 0b101)
    x = random_inputs(BOTH, 0)["x"]
    bias = np.linspace(-1, 1, INPUTS, dtype=np.float32)
    right = np.maximum(x @ rounded_weights(WEIGHTS, 1), 0) @ rounded_weights(WEIGHTS, 0).T + bias
    assert relative_error(run(model, BOTH), [right]).relative < 1e-5
    assert {node.op_type for node in model.graph.node} == {"DequantizeLinear", "MatMul", "Relu", "Gemm"}


@pytest.mark.parametrize("kind", PACKED)
def test_what_is_written_is_near_and_takes_a_quarter_of_the_bytes(kind: Arithmetic) -> None:
    model = written(BOTH, kind, 0b101)
    exact = written(BOTH, kind, 0)
    assert 1e-3 < relative_error(run(model, BOTH), run(exact, BOTH)).relative < 0.03
    assert model.ByteSize() < 0.6 * exact.ByteSize()  # two forms of the same weights, a quarter each
    assert written_in(model, kind) == {"n0_MatMul", "n2_Gemm"}


def test_blocks_that_are_not_full_and_zeros_are_right() -> None:
    graph = net(weights=np.where(np.arange(INPUTS)[:, None] < 256, 0, WEIGHTS).astype(np.float32))
    found, right = (run(written(graph, Arithmetic.INT8_BLOCKS, nodes), graph) for nodes in (0b1, 0))
    assert 1e-3 < relative_error(found, right).relative < 0.02


@pytest.mark.parametrize("kind", PACKED)
def test_shares_predict_what_weights_in_int8_lose(kind: Arithmetic) -> None:
    shares = error_sensitivities(BOTH, {}, [random_inputs(BOTH, 0)])
    assert [share > 0 for share in shares[kind]] == [True, False, True]
    error = relative_error(run(written(BOTH, kind, 0b101), BOTH), run(written(BOTH, kind, 0), BOTH)).relative
    assert math.sqrt(sum(shares[kind])) == pytest.approx(error, rel=0.15)
    assert shares[Arithmetic.BFLOAT16][1] > 0  # others are as they were


def test_keys_tell_kinds_and_places() -> None:
    asked = [numerics_of((kind, nodes)) for kind in PACKED for nodes in (0b1, 0b100, 0b101)]
    everything = BOTH.all_nodes
    assert len({writing_key(BOTH, everything, one, {}, None) for one in asked}) == len(asked)
    assert len({structure_text(BOTH, everything, one) for one in asked}) == len(asked)
    again = net(transposed=True)
    assert all(
        written(BOTH, kind, 0b101).SerializeToString() == written(again, kind, 0b101).SerializeToString()
        for kind in PACKED
    )
