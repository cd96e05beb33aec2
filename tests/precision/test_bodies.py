"""Operators with bodies beside lower precisions: what a body alone reads stays, in float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir import weights
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import numerics_of
from tests.precision.nets import ranges_of
from tests.support.numerics import INPUTS, written_region

SIZE = 512


def chosen() -> Graph:
    """A product, node 0, and an If, node 1, whose branches read it, and a constant, without being given them."""
    b = Builder("chosen")
    drawn = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE**0.5
    made, yes = b.op("MatMul", b.input("x", (1, SIZE)), b.const(drawn)), b.input("yes", (), TensorProto.BOOL)
    other = b.const(np.linspace(0, 1, SIZE, dtype=np.float32))

    def branch(op_type: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, (1, SIZE))
        return helper.make_graph([helper.make_node(op_type, [made, other], ["out"])], op_type, [], [out])

    return build_graph(b.model(b.op("If", yes, then_branch=branch("Add"), else_branch=branch("Mul"))))


EACH = [Arithmetic.INT8, Arithmetic.BFLOAT16, Arithmetic.INT8_WEIGHTS, Arithmetic.INT8_BLOCKS, Arithmetic.INT8_ROWS]


@pytest.mark.parametrize("arithmetic", EACH)
def test_what_a_body_alone_reads_is_there(arithmetic: Arithmetic) -> None:
    graph = chosen()
    model = written_region(graph, graph.all_nodes, numerics_of((arithmetic, 0b1)), ranges_of(graph), INPUTS)
    onnx.checker.check_model(model, full_check=arithmetic not in (Arithmetic.INT8_BLOCKS, Arithmetic.INT8_ROWS))
    if arithmetic is Arithmetic.BFLOAT16:
        return  # the reference has no product in it
    feeds = random_inputs(graph, 0)
    names = dict(zip(graph.inputs, (value.name for value in model.graph.input), strict=True))
    (exact,) = Reference(graph.model).run(feeds)
    (found,) = Reference(model).run({names[name]: value for name, value in feeds.items()})
    assert 1e-4 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 0.1


@pytest.mark.parametrize("arithmetic", EACH)
def test_weights_in_files_are_written_like_those_in_the_message(
    arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, numerics = chosen(), numerics_of((arithmetic, 0b1))
    wanted = written_region(graph, graph.all_nodes, numerics, ranges_of(graph), INPUTS)
    monkeypatch.setattr(weights, "HEAVY_BYTES", 0)
    heavy = build_graph(weights.light(graph.model))
    region = extract(heavy, heavy.all_nodes)
    assert any(map(weights.is_placed, region.graph.initializer))
    assert weights.inlined(region) == extract(graph, graph.all_nodes)
    assert weights.inlined(written_region(heavy, heavy.all_nodes, numerics, ranges_of(graph), INPUTS)) == wanted
