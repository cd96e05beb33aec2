"""bfloat16 written into a region: Casts around stretches, rounded constants, equal models for equal regions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.marks import heavy_in_int8, written_in
from collage_evo.precision.transforms.catalogue import transform_of
from collage_evo.precision.transforms.edits import (
    edits_from,
    edits_of,
    edits_text,
    joined,
    nodes_in,
    numerics_of,
    within,
)
from collage_evo.precision.transforms.piece import structure_text
from collage_evo.precision.transforms.transform import Data
from tests.precision.nets import ranges_of
from tests.support.models import chain
from tests.support.numerics import INPUTS, in_bfloat16, in_int8, writing_key, written_region
from tests.support.typed import not_none

GRAPH = build_graph(chain(3))
"""Convolutions, each with a Relu: nodes 0 to 5."""
BOTH = numerics_of((Arithmetic.INT8, 0b11), (Arithmetic.BFLOAT16, 0b1100))


def written(graph: Graph, nodes: int) -> onnx.ModelProto:
    return written_region(graph, graph.all_nodes, in_bfloat16(nodes), {}, None)


def casts(model: onnx.ModelProto) -> list[int]:
    """To which types the model's Casts lead, in order."""
    return [node.attribute[0].i for node in model.graph.node if node.op_type == "Cast"]


def test_casts_stand_around_a_stretch_not_around_each_operator() -> None:
    model = written(GRAPH, 0b111100)
    assert casts(model) == [TensorProto.BFLOAT16, TensorProto.FLOAT]
    assert [value.type.tensor_type.elem_type for value in model.graph.output] == [TensorProto.FLOAT]
    assert written_in(model, Arithmetic.BFLOAT16) == {"n2_Conv", "n3_Relu", "n4_Conv", "n5_Relu"}


def test_an_operator_in_float32_between_two_stretches_reads_and_makes_float32() -> None:
    model = written(GRAPH, 0b110011)
    low, high = TensorProto.BFLOAT16, TensorProto.FLOAT
    assert casts(model) == [low, high, low, high]
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    middle = next(node for node in model.graph.node if node.name == "n2_Conv")
    assert types[middle.input[0]] == types[middle.output[0]] == high


def test_a_tensor_is_cast_once_for_all_its_readers() -> None:
    b = Builder("fork")
    x = b.op("Relu", b.input("x", (1, 4)))
    graph = build_graph(b.model(b.op("Add", b.op("Sigmoid", x), b.op("Tanh", x))))
    inner = sum(1 << node.index for node in graph.nodes if node.op_type in ("Sigmoid", "Tanh"))
    assert Counter(casts(written(graph, inner))) == {TensorProto.BFLOAT16: 1, TensorProto.FLOAT: 2}


def test_constants_are_rounded_and_those_in_float32_are_as_they_were() -> None:
    model = written(GRAPH, 0b11)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    named = {node.name: node for node in model.graph.node}
    first, second = named["n0_Conv"], named["n2_Conv"]
    assert stored[first.input[1]].data_type == TensorProto.BFLOAT16
    weights = GRAPH.constants[GRAPH.nodes[2].inputs[1]]
    assert np.array_equal(numpy_helper.to_array(stored[second.input[1]]), weights)
    assert len(stored) == sum(name in GRAPH.constants for node in GRAPH.nodes for name in node.inputs if name)


def test_int8_and_bfloat16_and_float32_stand_in_one_region() -> None:
    ranges = ranges_of(GRAPH)
    model = written_region(GRAPH, GRAPH.all_nodes, BOTH, ranges, INPUTS)
    assert heavy_in_int8(model) == 1
    assert [name.partition("_")[2] for name in sorted(written_in(model, Arithmetic.BFLOAT16))] == ["Conv", "Relu"]
    with pytest.raises(InputError, match="takes no quantisers"):
        written_region(GRAPH, GRAPH.all_nodes, BOTH, ranges, None)


def test_equal_regions_are_written_alike_and_keys_cover_what_is_written_where() -> None:
    again = build_graph(chain(3))
    assert written(GRAPH, 0b1100).SerializeToString() == written(again, 0b1100).SerializeToString()
    asked = [(), in_bfloat16(0b1100), in_bfloat16(0b11), in_int8(0b11), BOTH]
    everything, ranges = GRAPH.all_nodes, ranges_of(GRAPH)
    assert len({writing_key(GRAPH, everything, one, ranges, INPUTS) for one in asked}) == len(asked)
    assert len({structure_text(GRAPH, everything, one) for one in asked}) == len(asked)
    assert structure_text(GRAPH, everything, in_int8(0b101)) == "|quantised 0,2", "what costs are kept under stays"


def test_labels_masks_and_old_operator_sets_stay_as_they_are() -> None:
    b = Builder("others")
    x = b.input("x", (1, 8))
    masked = b.op("Add", x, b.const(np.full(8, np.finfo(np.float32).min, np.float32)))
    b.op("Cast", b.op("Relu", masked), output="label", to=TensorProto.INT64)
    graph = build_graph(b.model("label"))
    casts = not_none(transform_of(Arithmetic.BFLOAT16))
    low = casts.sites(graph, graph.all_nodes, Data())
    assert [node.op_type for node in graph.nodes if low >> node.index & 1] == ["Relu"]
    old = build_graph(b.model("label", opset=12))
    assert not casts.sites(old, old.all_nodes, Data())


def test_edits_join_and_travel_as_text() -> None:
    assert joined([in_int8(0b1), in_bfloat16(0b11)]) == numerics_of((Arithmetic.INT8, 1), (Arithmetic.BFLOAT16, 2))
    assert within(BOTH, 0b110) == numerics_of((Arithmetic.INT8, 0b10), (Arithmetic.BFLOAT16, 0b100))
    assert nodes_in(BOTH, Arithmetic.FLOAT16) == 0
    sites = (("a", 0b1), ("a", 0b100), ("b", 0b10))
    assert edits_of(*reversed(sites), *BOTH) == (*BOTH, *sites), "sites of one rewrite stay apart"
    for one in ((), in_int8(5), in_bfloat16(6), BOTH):
        for rewritten in ((), sites[:1], sites):
            assert edits_from(edits_text((*one, *rewritten))) == (*one, *rewritten)
    assert edits_from("a") == in_int8(10), "as files of versions that knew int8 alone have it"
    assert edits_from("0") == ()
    assert edits_text((*in_int8(10), *sites[:1]), ":") == "a:a:1", "as placements are told apart in checkpoints"
