"""Variants of int8: what runs so really does, and what does not is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from collage_evo.backends.base import Backend, BuildFailure, Built
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.openvino.backend import OpenVinoBackend
from collage_evo.backends.select import piece_variants, whole_variants
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.reference.distance import relative_error
from collage_evo.hardware.processor import this_machine
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.marks import mark_int8
from collage_evo.precision.quantise.rules import quantisable
from collage_evo.precision.quantise.write import quantised_region
from collage_evo.precision.transforms.edits import numerics_of
from collage_evo.testing.cases import CASES
from collage_evo.testing.cases.case import weight
from tests.backends.pieces import build, outputs
from tests.precision import nets
from tests.precision.nets import net, ranges_of
from tests.support.numerics import DYNAMIC, written_region
from tests.support.processor import needs
from tests.support.typed import not_none

BACKENDS = [OnnxRuntimeBackend(), OpenVinoBackend()]
needs_int8 = needs(Arithmetic.INT8)


def names(backend: Backend, graph: Graph) -> list[str]:
    return [variant.name for variant in backend.variants_of(graph, graph.all_nodes)]


def quantised(graph: Graph, variant: Variant) -> onnx.ModelProto:
    chosen = quantisable(graph, graph.all_nodes, not_none(variant.int8_form), variant.everything)
    return quantised_region(graph, graph.all_nodes, chosen, ranges_of(graph), not_none(variant.int8_form))


@needs_int8
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize(
    "make",
    [
        nets.conv,
        nets.conv_depthwise,
        nets.gemm,
        nets.matmul,
        nets.attention,
        nets.attention_block,
        nets.conv_relu,
        nets.conv_add_relu,
        nets.max_pool,
    ],
)
def test_heavy_operators_between_quantisers_run_in_int8(
    backend: Backend, make: Callable[[Builder], str], tmp_path: Path
) -> None:
    graph = net(make)
    for variant in backend.variants_of(graph, graph.all_nodes):
        if variant.int8_form is not None and not backend.declines(variant):
            built = build(backend, quantised(graph, variant), tmp_path / variant.name, variant.base)
            assert isinstance(built, Built), f"{variant.name}: {built}"


@pytest.mark.parametrize("make", [lambda: net(nets.conv).model, CASES["attention"]], ids=["conv", "attention"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_float32_is_not_called_int8(backend: Backend, make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    model = make()
    assert isinstance(build(backend, model, tmp_path), Built)
    mark_int8(model, 1)
    built = build(backend, model, tmp_path)
    assert isinstance(built, BuildFailure)
    assert "none of the heavy operators in int8" in built.reason


@pytest.mark.parametrize(
    ("make", "onnxruntime", "openvino"),
    [
        (nets.conv, {"int8"}, {"int8", "bf16-int8"}),
        (nets.conv_transpose, set(), {"int8", "bf16-int8"}),
        (nets.matmul, {"int8", "int8-dynamic"}, {"int8", "bf16-int8"}),
        (nets.attention, {"int8"}, {"int8", "bf16-int8"}),
        (lambda b: b.op("Softmax", b.input("x", (1, 8))), set(), set()),
        (nets.max_pool, {"int8", "int8-all"}, {"int8", "int8-all", "bf16-int8", "bf16-int8-all"}),
    ],
)
def test_variants_are_offered_where_they_differ(
    make: Callable[[Builder], str], onnxruntime: set[str], openvino: set[str]
) -> None:
    graph = net(make)
    for backend, expected in zip(BACKENDS, (onnxruntime, openvino), strict=True):
        in_float32 = backend.name == "openvino" and make is nets.attention and this_machine().saturates_int8
        found = {name for name in names(backend, graph) if "int8" in name}
        assert found == (set() if in_float32 else expected), "products of two activations stay in float32 there"


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_all_variants_of_a_base_have_the_same_int8_form(backend: Backend) -> None:
    for variant in backend.variants:
        assert backend.variant(variant.base).int8_form in (None, DYNAMIC)
        if variant.int8_form is not None:
            assert backend.int8_form(variant.base) is variant.int8_form


@needs_int8
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_without_ranges_only_dynamic_quantisers_take_part(backend: Backend) -> None:
    graph = net(nets.matmul)

    def offered(tolerance: float, ranges: bool) -> set[Int8Form | None]:
        found = piece_variants(backend, graph, graph.all_nodes, None, tolerance, ranges)
        return {variant.int8_form for variant in found}

    assert backend.variant("int8").int8_form in offered(Arithmetic.INT8.roundoff, True)
    assert offered(Arithmetic.INT8.roundoff, False) <= {None, DYNAMIC}
    assert offered(Arithmetic.INT8.roundoff / 2, True) == {None}


def wide(b: Builder) -> str:
    product = b.op("MatMul", b.input("x", (2, 5, 256)), b.const(weight(256, 208)))
    return b.op("MatMul", b.op("Relu", product), b.const(weight(208, 256)))


def test_wide_products_of_several_rows_take_part_by_rows_without_ranges(tmp_path: Path) -> None:
    graph, backend = net(wide), OnnxRuntimeBackend()
    rows = backend.variant("int8-rows")
    assert rows in piece_variants(backend, graph, graph.all_nodes, None, Arithmetic.INT8_ROWS.roundoff, False)
    assert rows not in piece_variants(backend, graph, graph.all_nodes, None, Arithmetic.INT8_ROWS.roundoff / 2, False)
    assert rows not in piece_variants(backend, net(nets.matmul), 0b1, None, 0.01, False)
    both = numerics_of((Arithmetic.INT8_ROWS, 0b001), (Arithmetic.INT8, 0b100))
    model = written_region(graph, graph.all_nodes, both, ranges_of(graph), backend.int8_form("default"))
    found = outputs(backend, model, tmp_path / "both")
    exact = outputs(backend, extract(graph, graph.all_nodes), tmp_path / "exact")
    assert 1e-3 < relative_error(found, exact).relative < 0.03
    by_rows = written_region(graph, graph.all_nodes, numerics_of((Arithmetic.INT8_ROWS, 0b101)), {}, None)
    mark_int8(by_rows, 1)
    built = build(backend, by_rows, tmp_path / "marked")
    assert isinstance(built, BuildFailure)
    assert "none of the heavy operators in int8" in built.reason


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_whole_files_are_run_without_quantisers_of_ours(backend: Backend) -> None:
    assert {variant.int8_form for variant in whole_variants(backend, None, 1.0)} == {None}


def test_dilated_convolutions_over_three_axes_are_left_out_where_openvino_writes_past_their_memory() -> None:
    dilated, plain = (nets.build_graph(CASES[name]()) for name in ("conv_3d_dilated_planes", "conv_3d"))
    assert "int8" in names(OpenVinoBackend(), plain)
    assert "int8" not in names(OpenVinoBackend(), dilated)
    assert "int8" in names(OnnxRuntimeBackend(), dilated)


@needs_int8
@pytest.mark.parametrize("perm", [[0, 2, 3, 1], [0, 2, 1, 3]])
def test_openvino_runs_a_product_in_int8_behind_which_an_axis_of_one_is_appended(
    perm: list[int], tmp_path: Path
) -> None:
    """Where nothing is added to the product the plugin cannot move its scales there, and gives up."""

    def heads(b: Builder) -> str:
        product = b.op("MatMul", b.input("x", (1, 4, 64)), b.const(weight(64, 64)))
        return b.op("Transpose", b.op("Reshape", product, b.ints(1, 1, 4, 64)), perm=perm)

    graph, backend = net(heads), OpenVinoBackend()
    assert "int8" in names(backend, graph)
    assert isinstance(build(backend, quantised(graph, backend.variant("int8")), tmp_path), Built)
