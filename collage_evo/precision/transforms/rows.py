"""The int8-by-rows transform, for products by constant weights: each row of activations has a scale of its own.

It needs no calibration data and holds for every shape. A row is what lies along the last axis: its scale is found at
run time, so that its result depends neither on other rows of a batch nor on padding beside it. Weights have a scale
for each output. Rows are rounded once for all products that read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx
from onnx import helper

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.graph.ir.operators import CONTRIBUTED
from collage_evo.hardware.processor import this_machine
from collage_evo.multimap import multimap
from collage_evo.precision.quantise.rounded import RoundedWeights, rounded_weights, usual_scales
from collage_evo.precision.quantise.rules import Ranges, constant_products, weight_axis
from collage_evo.precision.transforms.transform import Data, Draft, Operators, Transform, Trial

LEAST_PER_NUMBER = 100
"""Multiply-adds for each number that is read or made, below which rounding and scaling these takes longer than
integers save, whatever the number of rows. Measured: 0.6 of float32's speed with 64 inputs and outputs, 0.97 with
128, 1.2 with 256, 1.4 with 384 (64 rows, Xeon, natively and held to AVX2)."""
_AXES_AS_INPUT = 18
"""From this operator set on ReduceMax has axes as an input."""
_ZERO, _STEPS = 128, 127
"""The integer that stands for zero, and the steps from there to the largest number of a row."""
_CONSTANTS: Mapping[str, np.ndarray] = {
    "rows_axis": np.array([-1], np.int64),
    "rows_steps": np.array(_STEPS, np.float32),
    "rows_step": np.array(1 / _STEPS, np.float32),
    "rows_unit": np.array(1, np.float32),
    "rows_zero": np.array(_ZERO, np.uint8),
}


@dataclass(frozen=True)
class Rows(Transform):
    """MatMulIntegerToFloat of rows in uint8, and its result times the scales of the rows."""

    into_rewritten: ClassVar[bool] = False

    def sites(self, graph: Graph, nodes: NodeSet, data: Data) -> NodeSet:
        """Products of several rows by constant weights with many inputs and outputs."""
        products = constant_products(graph, nodes)
        return node_set(index for index in members(products) if _pays(graph, graph.nodes[index]))

    def apply(self, draft: Draft, nodes: NodeSet) -> None:
        graph = draft.graph
        made = zip(draft.made_by(nodes), members(nodes), strict=True)  # one tensor each
        products = {name: graph.nodes[index] for name, index in made}
        protos = (proto for proto in draft.model.graph.node if proto.output[0] in products)
        readers = multimap((proto.input[0], proto.name) for proto in protos)

        def written(proto: onnx.NodeProto) -> Operators:
            operators, constants = _product(graph, products[proto.output[0]], proto)
            if sharing := readers.pop(proto.input[0], None):
                rounding, its = _rounded(proto.input[0], sharing, graph.opset)
                return rounding + operators, its | constants
            return operators, constants

        draft.replace(nodes, self.arithmetic, written)

    def key(self, draft: Draft, nodes: NodeSet) -> str:
        return super().key(draft, nodes) + (" weights fit sums of pairs" if this_machine().saturates_int8 else "")

    def trial(self, graph: Graph, node: Node, ranges: Ranges) -> Trial:
        """The trial multiplies what the integers stand for, so that the model holds no second copy of the weights."""
        return Trial(instead=partial(_in_float32, opset=graph.opset))

    def constants(self, graph: Graph, node: Node, ranges: Ranges) -> Mapping[str, np.ndarray]:
        """Rounded weights."""
        return {node.inputs[1]: _weights(graph, node).values}


def _pays(graph: Graph, node: Node) -> bool:
    weights = graph.constants[node.inputs[1]]
    # A single row has the scale of its tensor: blocks of it are finer.
    several = math.prod(graph.tensors[node.inputs[0]].shape[:-1]) > 1
    return several and weights.size >= LEAST_PER_NUMBER * sum(weights.shape)


def _in_float32(proto: onnx.NodeProto, opset: int) -> Operators:
    """``proto`` on its rows as they are after rounding."""
    rows, product = proto.input[0], deepcopy(proto)
    rounding, constants = _rounded(rows, [proto.name], opset)
    product.input[0] = f"{rows}_rounded"
    constants["rows_step"] = _CONSTANTS["rows_step"]
    exact = helper.make_node("DequantizeLinear", [f"{rows}_rows", "rows_step", "rows_zero"], [f"{rows}_units"])
    scaled = helper.make_node("Mul", [f"{rows}_units", f"{rows}_largest"], [product.input[0]])
    return [*rounding, exact, scaled, product], constants


def _weights(graph: Graph, node: Node) -> RoundedWeights:
    axis = weight_axis(graph, node)
    assert axis is not None  # of constant weights
    return rounded_weights(graph, node.inputs[1], axis, usual_scales(graph, node))


def _rounded(rows: str, readers: Sequence[str], opset: int) -> Operators:
    """Rows as integers, and the largest absolute number of each, for products of the names ``readers``.

    Operators are named after all of these, because profiles are read by their names. A row of zeros, divided by its
    largest number, is NaN: its integers are arbitrary, and what is multiplied by them is then multiplied by zero.
    """
    stem = "_".join(readers)

    def one(op_type: str, inputs: Sequence[str], output: str) -> onnx.NodeProto:
        return helper.make_node(op_type, inputs, [f"{rows}_{output}"], f"{stem}_{output}")

    operators = [
        one("Abs", [rows], "absolute"),
        one("ReduceMax", [f"{rows}_absolute", *(["rows_axis"] if opset >= _AXES_AS_INPUT else [])], "largest"),
        one("Div", ["rows_steps", f"{rows}_largest"], "factor"),
        one("Mul", [rows, f"{rows}_factor"], "steps"),
        one("QuantizeLinear", [f"{rows}_steps", "rows_unit", "rows_zero"], "rows"),
    ]
    if opset < _AXES_AS_INPUT:
        operators[1].attribute.append(helper.make_attribute("axes", [-1]))
    return operators, {name: _CONSTANTS[name] for proto in operators for name in proto.input if name in _CONSTANTS}


def _product(graph: Graph, node: Node, proto: onnx.NodeProto) -> Operators:
    """``proto``, the copy of ``node``, by weights in int8 from rounded rows."""
    (result,), rows, axis, weights = proto.output, proto.input[0], weight_axis(graph, node), _weights(graph, node)
    stem = f"{proto.input[1]}_rows_axis{axis}"
    constants: dict[str, np.ndarray] = {
        f"{stem}_q": np.ascontiguousarray(weights.numbers if axis else weights.numbers.T),
        f"{stem}_scale": weights.scales,
        f"{stem}_zero": np.zeros(weights.scales.shape, np.int8),
        "rows_step": _CONSTANTS["rows_step"], "rows_zero": _CONSTANTS["rows_zero"],
    }  # fmt: skip
    bias = proto.input[2] if len(proto.input) > 2 else ""
    read = [f"{rows}_rows", f"{stem}_q", "rows_step", f"{stem}_scale", "rows_zero", f"{stem}_zero"]
    product, scaled = f"{result}_product", f"{result}_raw" if bias else result
    operators = [
        helper.make_node("MatMulIntegerToFloat", read, [product], proto.name, domain=CONTRIBUTED),
        helper.make_node("Mul", [product, f"{rows}_largest"], [scaled], f"{proto.name}_scaled"),
    ]
    if bias:
        operators.append(helper.make_node("Add", [scaled, bias], [result], f"{proto.name}_bias"))
    return operators, constants
