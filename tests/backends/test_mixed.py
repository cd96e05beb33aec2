"""float32, bfloat16 and int8 in one OpenVINO piece: each operator runs in what is written for it, or nothing does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.backends.openvino.backend import OpenVinoBackend
from collage_evo.backends.openvino.precision import other_precision
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.bert import bert
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Region
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.marks import mark_written
from collage_evo.precision.transforms.edits import Numerics, numerics_of
from tests.backends.pieces import outputs
from tests.precision.nets import ranges_of
from tests.support.models import chain
from tests.support.numerics import in_bfloat16, written_region
from tests.support.processor import needs

BACKEND = OpenVinoBackend()
CAST, DEFAULT = BACKEND.variant("bf16-cast"), BACKEND.variant("default")
GRAPH = build_graph(chain(3))
"""Convolutions, each with a Relu: nodes 0 to 5."""
MIXED = numerics_of((Arithmetic.INT8, 0b000011), (Arithmetic.BFLOAT16, 0b001100))
needs_bfloat16 = pytest.mark.skipif(bool(BACKEND.declines(CAST)), reason=BACKEND.declines(CAST))
needs_both = needs(Arithmetic.INT8, Arithmetic.BFLOAT16)


def model_of(numerics: Numerics) -> onnx.ModelProto:
    return written_region(GRAPH, GRAPH.all_nodes, numerics, ranges_of(GRAPH), BACKEND.int8_form("default"))


@needs_both
def test_each_operator_runs_in_its_own_precision_after_the_import(tmp_path: Path) -> None:
    exact = list(reference_outputs(GRAPH.model, random_inputs(GRAPH, 0), 1))
    errors = {}
    for name, numerics in {"float32": (), "bfloat16": in_bfloat16(0b111111), "one": in_bfloat16(0b11)}.items():
        errors[name] = relative_error(outputs(BACKEND, model_of(numerics), tmp_path / name), exact).relative
    assert errors["float32"] < 1e-5 < errors["one"] < errors["bfloat16"] < 0.02
    assert 1e-4 < relative_error(outputs(BACKEND, model_of(MIXED), tmp_path), exact).relative < 0.1


@needs_bfloat16
def test_what_is_not_as_written_is_no_piece(tmp_path: Path) -> None:
    plain = extract(GRAPH, GRAPH.all_nodes)
    mark_written(plain, Arithmetic.BFLOAT16, ["n0_Conv"])
    failed = BACKEND.build(plain, Target(), DEFAULT, tmp_path)
    assert isinstance(failed, BuildFailure)
    assert failed.reason == "openvino: n0_Conv is written in bfloat16 and runs in f32"
    all_low = BACKEND.build(model_of(in_bfloat16(0b11)), Target(), BACKEND.variant("bf16"), tmp_path)
    assert isinstance(all_low, BuildFailure)
    assert "runs in bfloat16, in which it is not written" in all_low.reason


def products() -> tuple[Graph, int, int]:
    """Two products, each with what is added to it, and Swish between; the nodes of the two."""
    net, rng = Builder("products"), np.random.default_rng(0)

    def linear(x: str, output: str = "") -> str:
        weights, bias = (net.const(rng.standard_normal(shape).astype(np.float32)) for shape in ((32, 32), (32,)))
        return net.op("Add", net.op("MatMul", x, weights), bias, output=output)

    inner = linear(net.input("x", (1, 8, 32)))
    graph = build_graph(net.model(linear(net.op("Mul", inner, net.op("Sigmoid", inner)), "y")))
    first, last = (node.index for node in graph.nodes if node.op_type == "MatMul")
    return graph, first, last


def attention() -> tuple[Graph, int, int]:
    """A block of an encoder; the products of its values and of its outputs."""
    graph = build_graph(normalise(bert(0, layers=1, length=128, hidden=128, heads=2, vocabulary=50)))
    index_of = {node.name.rpartition(".attention.")[2]: node.index for node in graph.nodes}
    return graph, index_of["value.matmul"], index_of["output.matmul"]


@needs_both
@pytest.mark.parametrize(("make", "least", "most"), [(products, 1e-3, 0.1), (attention, 1e-4, 0.05)])
def test_a_kernel_of_a_product_in_bfloat16_may_have_the_name_of_its_bias_in_float32(
    make: Callable[[], tuple[Graph, int, int]], least: float, most: float, tmp_path: Path
) -> None:
    graph, low, quantised = make()
    numerics = numerics_of((Arithmetic.BFLOAT16, 1 << low), (Arithmetic.INT8, 1 << quantised))
    model = written_region(graph, graph.all_nodes, numerics, ranges_of(graph), BACKEND.int8_form("default"))
    exact = list(reference_outputs(graph.model, random_inputs(graph, 0), 1))
    assert least < relative_error(outputs(BACKEND, model, tmp_path), exact).relative < most


class Kernel(NamedTuple):
    """A kernel of a compiled model, in bfloat16, as the library tells of it."""

    operators: str

    def get_rt_info(self) -> dict[str, Any]:
        told = {"layerType": "MatMul", "runtimePrecision": "bf16", "originalLayersNames": self.operators}
        return {key: SimpleNamespace(astype=lambda _, value=value: value) for key, value in told.items()}


@pytest.mark.parametrize(
    ("operators", "told"),
    [("n2_Add", ""), ("n1_MatMul,n2_Add", "n1_MatMul runs in bfloat16, in which it is not written")],
)
def test_of_two_products_that_are_added_the_one_in_the_kernel_counts(operators: str, told: str) -> None:
    net = Builder("added")
    x, weights = net.input("x", (1, 8, 32)), net.const(np.ones((32, 32), np.float32))
    graph = build_graph(net.model(net.op("Add", net.op("MatMul", x, weights), net.op("MatMul", x, weights))))
    model = extract(graph, graph.all_nodes)
    mark_written(model, Arithmetic.BFLOAT16, ["n0_MatMul"])
    runs = SimpleNamespace(get_ops=lambda: [Kernel("n0_MatMul"), Kernel(operators)])
    assert other_precision(SimpleNamespace(get_runtime_model=lambda: runs), model) == told


def test_casts_make_pieces_with_float32_and_int8_and_no_whole_file_is_run_so() -> None:
    assert CAST.base == BACKEND.variant("int8").base == "default"
    assert CAST.writes
    assert Region(1, "openvino", edits=in_bfloat16(1)) != Region(1, "openvino")
