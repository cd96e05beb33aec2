"""Weights in int8: libraries read them so, beside other precisions in one piece, and files that come so are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.backends.base import Backend, BuildFailure
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.openvino.backend import OpenVinoBackend
from collage_evo.backends.select import piece_variants
from collage_evo.backends.variants import Variant
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.graph import NodeSet
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.precision.quantise.arithmetic import PACKED, Arithmetic
from collage_evo.precision.quantise.marks import mark_written
from collage_evo.precision.transforms.edits import numerics_of
from tests.backends.pieces import build, outputs
from tests.precision.nets import ranges_of
from tests.precision.test_weights import BOTH, net
from tests.support.numerics import written_region
from tests.support.processor import needs

BACKENDS = [OnnxRuntimeBackend(), OpenVinoBackend()]
GRAPH = BOTH
"""MatMul, Relu, Gemm by the same weights: nodes 0 to 2."""
both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)


def packing(backend: Backend) -> Variant:
    """The variant that keeps weights in int8."""
    return next(variant for variant in backend.variants if variant.arithmetic in PACKED)


@both
def test_they_are_offered_without_data_for_products_alone(backend: Backend) -> None:
    own = packing(backend)

    def offered(nodes: NodeSet, tolerance: float) -> set[str]:
        return {one.name for one in piece_variants(backend, GRAPH, nodes, None, tolerance)}

    assert (own.name in offered(GRAPH.all_nodes, 0.01)) == (not backend.declines(own))
    assert own.name not in offered(GRAPH.all_nodes, 0.001)
    assert own.name not in offered(0b10, 0.01)
    assert own.base == "default"
    assert own.writes


@both
def test_pieces_give_what_is_written_and_keep_a_quarter_of_the_bytes(backend: Backend, tmp_path: Path) -> None:
    model = written_region(GRAPH, 0b111, numerics_of((packing(backend).arithmetic, 0b101)), {}, None)
    found = outputs(backend, model, tmp_path / "packed")
    written = list(reference_outputs(model, {"i0": random_inputs(GRAPH, 0)["x"]}, 1))
    assert relative_error(found, written).relative < 1e-4
    exact = outputs(backend, extract(GRAPH, 0b111), tmp_path / "exact")
    assert 1e-3 < relative_error(found, exact).relative < 0.03
    packed, full = (sum(f.stat().st_size for f in (tmp_path / name).iterdir()) for name in ("packed", "exact"))
    assert packed < 0.6 * full  # two forms of the same weights, a quarter each


@needs(Arithmetic.INT8, Arithmetic.BFLOAT16)
@pytest.mark.parametrize("other", [Arithmetic.INT8, Arithmetic.BFLOAT16])
@both
def test_they_stand_beside_other_precisions_in_one_piece(backend: Backend, other: Arithmetic, tmp_path: Path) -> None:
    if other is Arithmetic.BFLOAT16 and backend.name != "openvino":
        pytest.skip("it has no bfloat16")
    numerics = numerics_of((packing(backend).arithmetic, 0b100), (other, 0b001))
    model = written_region(GRAPH, 0b111, numerics, ranges_of(GRAPH), backend.int8_form("default"))
    exact = outputs(backend, extract(GRAPH, 0b111), tmp_path / "exact")
    assert 1e-3 < relative_error(outputs(backend, model, tmp_path / "mixed"), exact).relative < 0.05


def test_openvino_that_reads_them_in_float32_is_no_piece(tmp_path: Path) -> None:
    model = extract(GRAPH, 0b111)
    mark_written(model, Arithmetic.INT8_WEIGHTS, ["n0_MatMul"])
    failed = build(OpenVinoBackend(), model, tmp_path)
    assert isinstance(failed, BuildFailure)
    assert failed.reason == "openvino: n0_MatMul is to read weights in int8 and reads f32"


@pytest.mark.parametrize("bits", [4, 8])
@both
def test_files_that_come_with_packed_weights_are_right(backend: Backend, bits: int, tmp_path: Path) -> None:
    quantiser = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    graph = net()
    tool = quantiser.MatMulNBitsQuantizer(graph.model, bits=bits, block_size=32, is_symmetric=True)
    tool.process()
    model = tool.model.model
    assert "MatMulNBits" in {node.op_type for node in model.graph.node}
    right = list(reference_outputs(model, random_inputs(graph, 0), 1))
    assert relative_error(outputs(backend, model, tmp_path), right).relative < 1e-4
