"""Operators of two graphs are paired by what they do, whatever their weights' values are."""

import onnx
import pytest
from onnx import helper, numpy_helper

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.align import likeness, same_nodes
from collage_evo.graph.ir.graph import Graph
from tests.support.models import chain, tiny_branchy, tiny_convnet


def graph_of(model: onnx.ModelProto) -> Graph:
    return build_graph(onnx.shape_inference.infer_shapes(model))


def wider_head(model: onnx.ModelProto, classes: int) -> onnx.ModelProto:
    """``model`` with as many classes, repeated weights of the ones that it had."""
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    for tensor in model.graph.initializer:
        if tensor.name in gemm.input[1:]:
            values = numpy_helper.to_array(tensor)
            repeated = values.repeat(classes // values.shape[0], axis=0)
            tensor.CopyFrom(numpy_helper.from_array(repeated, tensor.name))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = classes
    del model.graph.value_info[:]
    return model


def with_one_more(model: onnx.ModelProto, before: str) -> onnx.ModelProto:
    """``model`` with a Neg before its last operator of the kind ``before``."""
    index = max(k for k, node in enumerate(model.graph.node) if node.op_type == before)
    node = model.graph.node[index]
    model.graph.node.insert(index, helper.make_node("Neg", [node.input[0]], ["negated"]))
    model.graph.node[index + 1].input[0] = "negated"
    return model


@pytest.mark.parametrize("classes", [10, 20])
def test_other_weights_and_a_head_of_another_width_leave_every_operator_paired_with_itself(classes: int) -> None:
    before, now = graph_of(tiny_convnet(seed=0)), graph_of(wider_head(tiny_convnet(seed=1), classes))
    assert same_nodes(now, before) == {node: node for node in range(len(now.nodes))}


def test_an_operator_that_came_between_has_no_pair_and_those_behind_it_are_paired_one_further() -> None:
    before, now = graph_of(tiny_convnet()), graph_of(with_one_more(tiny_convnet(seed=1), "Gemm"))
    new = next(node.index for node in now.nodes if node.op_type == "Neg")
    pairs = same_nodes(now, before)
    assert new not in pairs
    assert all(pairs[node] == node - (node > new) for node in range(len(now.nodes)) if node != new)


def test_models_are_as_alike_as_the_share_of_operators_that_both_have_in_order() -> None:
    assert likeness(tiny_convnet(seed=1), tiny_convnet()) == 1.0
    assert likeness(tiny_convnet(), with_one_more(tiny_convnet(), "Gemm")) < 1.0
    assert likeness(tiny_branchy(), chain(1)) == likeness(chain(1), tiny_branchy()) < 0.5
