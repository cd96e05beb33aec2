"""The int8 transform: quantisers with calibrated ranges, or with ranges found at run time."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial

import numpy as np
import onnx
from onnx import helper

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set, union
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.precision.quantise.bias import corrected_bias
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.rounded import RoundedWeights, rounded_weights, usual_scales
from collage_evo.precision.quantise.rules import (
    PASSING,
    Ranges,
    constant_products,
    correcting_means,
    quantisable,
    quantised_inputs,
    scale_source,
    weight_axis,
)
from collage_evo.precision.quantise.scales import activation_scale
from collage_evo.precision.quantise.write import quantisation_key, quantised_region
from collage_evo.precision.transforms.transform import Data, Draft, Operators, Transform, Trial

_ANY = Int8Form("any", lambda graph, node: True)
"""What some library may take."""


class Int8(Transform):
    """QuantizeLinear and DequantizeLinear in the library's form (``precision/quantise/``)."""

    def sites(self, graph: Graph, nodes: NodeSet, data: Data) -> NodeSet:
        if data.int8_form is None:
            return 0
        return quantisable(graph, nodes, data.int8_form, data.everything, data.ranges)

    def apply(self, draft: Draft, nodes: NodeSet) -> None:
        draft.model = quantised_region(draft.graph, draft.nodes, nodes, *_calibration(draft.data))

    def key(self, draft: Draft, nodes: NodeSet) -> str:
        return quantisation_key(draft.graph, draft.nodes, nodes, *_calibration(draft.data))

    def losing(self, graph: Graph, nodes: NodeSet, ranges: Ranges) -> NodeSet:
        """Excludes operators that only pass values on: they round nothing that their readers would not."""
        # Each by itself: whether it pays next to others does not matter here.
        singles = union(quantisable(graph, 1 << index, _ANY, True, ranges) for index in members(nodes))
        operators = (graph.nodes[index] for index in members(constant_products(graph, nodes) | singles))
        return node_set(n.index for n in operators if n.op_type not in PASSING and _known(graph, n, ranges))

    def trial(self, graph: Graph, node: Node, ranges: Ranges) -> Trial:
        read = {place: ranges[scale_source(graph, node.inputs[place])] for place in quantised_inputs(graph, node)}
        scales = {place: activation_scale(its.low, its.high) for place, its in read.items()}
        means = correcting_means(graph, node, ranges) if node.op_type == "MatMul" else ()
        if not means or (rounded := _rounded(graph, node)) is None:
            return Trial(scales)
        shift = rounded.shift(graph, node, means).astype(np.float32)
        return Trial(scales, instead=partial(_and_sum, bias=shift))

    def constants(self, graph: Graph, node: Node, ranges: Ranges) -> Mapping[str, np.ndarray]:
        """Rounded weights, and the bias for these."""
        if (weights := _rounded(graph, node)) is None:
            return {}
        constants = {node.inputs[1]: weights.values}
        if len(node.inputs) > 2 and node.inputs[2] and (means := correcting_means(graph, node, ranges)):
            bias = graph.constants[node.inputs[2]]
            constants[node.inputs[2]] = corrected_bias(bias, weights.shift(graph, node, means))
        return constants


def _rounded(graph: Graph, node: Node) -> RoundedWeights | None:
    """The weights of ``node`` in int8; None where it has none in float32."""
    axis = weight_axis(graph, node) if node.op_type in HEAVY else None
    if axis is None or graph.constants[node.inputs[1]].dtype != np.float32:
        return None
    return rounded_weights(graph, node.inputs[1], axis, usual_scales(graph, node))


def _and_sum(plain: onnx.NodeProto, bias: np.ndarray) -> Operators:
    """``plain`` and a sum of its result with ``bias`` along the last axis."""
    (name,), product = plain.output, copy.deepcopy(plain)
    product.output[0], added = f"{name} before its bias", f"bias of {name}"
    return [product, helper.make_node("Add", [product.output[0], added], [name])], {added: bias}


def _known(graph: Graph, node: Node, ranges: Ranges) -> bool:
    return all(scale_source(graph, node.inputs[position]) in ranges for position in quantised_inputs(graph, node))


def _calibration(data: Data) -> tuple[Ranges, Int8Form]:
    if data.int8_form is None:
        raise InputError("its operators cannot run in int8: this way of compiling it takes no quantisers")
    return data.ranges or {}, data.int8_form
