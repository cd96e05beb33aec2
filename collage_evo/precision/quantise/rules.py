"""Eligibility for int8: the nodes that may have quantisers around them.

Activations are uint8 with a zero point, one scale a tensor; weights are int8, symmetric, one scale an output channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.precision.quantise.form import PRODUCTS, Int8Form


class Range(NamedTuple):
    """A calibrated tensor: the least and the greatest value, and the mean of each input channel of the operators that
    read it, where these can correct a bias (else empty)."""

    low: float
    high: float
    means: tuple[float, ...] = ()


Ranges = Mapping[str, Range]
"""By a tensor's name in the normalised graph."""


PASSING = frozenset({"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"})
"""Operators whose output has their input's scale: they only select or move values."""
_POOLING = frozenset({"AveragePool", "GlobalAveragePool"})
_JOINING = frozenset({"Add", "Concat"})
_MIN_OPSET = 13
"""From here on DequantizeLinear takes one scale a channel."""


def quantisable(
    graph: Graph, nodes: NodeSet, form: Int8Form, everything: bool = False, ranges: Ranges | None = None
) -> NodeSet:
    """The ``nodes`` that a match of an int8 variant runs in int8; none where the operator set is too old.

    Args:
        graph: the normalised model.
        nodes: the match.
        form: of the library.
        everything: include pooling, joins and moves whose result goes into an operator in int8, or leaves ``nodes``;
            else only heavy operators.
        ranges: if given, excludes nodes that need a missing range, or another one than calibrated.
    """
    chosen = [graph.nodes[index] for index in members(nodes)]
    heavy = [node for node in chosen if _writable(graph, node) and form.takes(graph, node)]
    if not form.calibrated:
        return node_set(node.index for node in heavy)
    in_int8 = node_set(node.index for node in heavy if _calibrated(graph, node, ranges))
    if not everything or graph.opset < _MIN_OPSET:
        return in_int8
    for node in reversed(chosen):
        if _light(graph, node) and _calibrated(graph, node, ranges) and _pays(graph, node, nodes, in_int8):
            in_int8 |= 1 << node.index
    return in_int8


def constant_products(graph: Graph, nodes: NodeSet) -> NodeSet:
    """The products among ``nodes`` by constant weights that can be written in int8 without calibration."""
    products = (graph.nodes[index] for index in members(nodes) if graph.nodes[index].op_type in PRODUCTS)
    return node_set(n.index for n in products if n.inputs[1] in graph.constants and _writable(graph, n))


def quantised_inputs(graph: Graph, node: Node) -> tuple[int, ...]:
    """The positions of the activations that a quantised ``node`` reads through quantisers."""
    if node.op_type in HEAVY:
        return (0,) if len(node.inputs) < 2 or node.inputs[1] in graph.constants else (0, 1)
    return tuple(range(len(node.inputs))) if node.op_type in _JOINING else (0,)


def weight_axis(graph: Graph, node: Node) -> int | None:
    """The axis of output channels in a heavy node's weights, its second input; None where that is an activation."""
    if node.inputs[1] not in graph.constants:
        return None
    if node.op_type == "Conv" or (node.op_type == "Gemm" and node.attributes.get("transB", 0)):
        return 0
    return 1 if node.op_type == "ConvTranspose" else graph.constants[node.inputs[1]].ndim - 1


def corrected_axis(graph: Graph, node: Node) -> int | None:
    """The axis of input channels in the first input of ``node``, where it has, or may get, a bias that can undo the
    mean error of its int8 weights; else None."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.domain not in ("", "ai.onnx"):
        return None
    rank = len(graph.tensors[node.inputs[0]].shape)
    if node.op_type == "MatMul":
        return rank - 1 if rank > 1 and _product(graph, node) else None
    return 1 if rank > 1 and node.inputs[1] in graph.constants else None


def correcting_means(graph: Graph, node: Node, ranges: Ranges) -> tuple[float, ...]:
    """Means of the input channels of ``node``, for the correction of its bias; empty where there is none."""
    range_ = ranges.get(node.inputs[0]) if corrected_axis(graph, node) is not None else None
    return range_.means if range_ else ()


def fused_activation(graph: Graph, node: Node, nodes: NodeSet) -> Node | None:
    """The activation among ``nodes`` that libraries compute in the same loop as ``node``: its only reader."""
    readers = graph.consumers.get(node.outputs[0], ())
    if len(readers) != 1 or node.outputs[0] in graph.outputs or not nodes >> readers[0] & 1:
        return None
    reader = graph.nodes[readers[0]]
    return reader if reader.op_type == "Relu" or (reader.op_type == "Clip" and _from_zero(graph, reader)) else None


def scale_source(graph: Graph, tensor: str) -> str:
    """The tensor whose range sets the scale of ``tensor``: the one before operators that only pass values on."""
    while (maker := graph.producer.get(tensor)) is not None and graph.nodes[maker].op_type in PASSING:
        before = graph.nodes[maker].inputs[0]
        if before in graph.constants or graph.nodes[maker].domain not in ("", "ai.onnx"):
            break
        tensor = before
    return tensor


def _float32(graph: Graph, *names: str) -> bool:
    return all(graph.tensors[name].dtype == "float32" and graph.tensors[name].static for name in names if name)


def _writable(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is heavy and can be written in int8."""
    if node.op_type not in HEAVY or graph.opset < _MIN_OPSET:
        return False
    activation = node.inputs[0] not in graph.constants
    standard = node.domain in ("", "ai.onnx") and _float32(graph, *node.inputs, *node.outputs)
    return standard and activation and _RULES[node.op_type](graph, node)


def _constant_weights(graph: Graph, node: Node) -> bool:
    return all(name in graph.constants for name in node.inputs[1:] if name)


def _product(graph: Graph, node: Node) -> bool:
    """A batch of matrices by a constant matrix."""
    weights = graph.constants.get(node.inputs[1])
    return weights is not None and weights.ndim == 2 and len(graph.tensors[node.inputs[0]].shape) > 1


def _any_product(graph: Graph, node: Node) -> bool:
    """Products, also of two activations, as in attention."""
    shapes = [graph.tensors[name].shape for name in node.inputs]
    return _product(graph, node) or (_activations(graph, node) and len(shapes[0]) == len(shapes[1]) > 1)


def _activations(graph: Graph, node: Node) -> bool:
    return not any(name in graph.constants for name in node.inputs)


def _gemm(graph: Graph, node: Node) -> bool:
    attributes = node.attributes
    plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
    bias = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1)
    return plain and node.inputs[1] in graph.constants and bias is not None and bias.ndim <= 1


_RULES: Mapping[str, Callable[[Graph, Node], bool]] = {
    "Conv": _constant_weights,
    "ConvTranspose": _constant_weights,
    "Gemm": _gemm,
    "MatMul": _any_product,
}


def _light(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a pooling, a join or a move of float32 activations."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in PASSING | _POOLING | _JOINING:
        return False
    if len([name for name in node.outputs if name]) != 1:
        return False  # indices of the maxima
    if node.op_type == "AveragePool" and (any(node.attributes.get("pads", ())) or "auto_pad" in node.attributes):
        return False  # integers may be padded with another number than that of zero: averages are wrong
    read = [node.inputs[position] for position in quantised_inputs(graph, node)]
    return _float32(graph, *read, node.outputs[0]) and not any(name in graph.constants for name in read)


def _calibrated(graph: Graph, node: Node, ranges: Ranges | None) -> bool:
    if ranges is None:
        return True
    touched = [scale_source(graph, node.inputs[position]) for position in quantised_inputs(graph, node)]
    if not all(name in ranges for name in (*touched, scale_source(graph, node.outputs[0]))):
        return False
    # No kernel of a transposed convolution takes a zero point, so its input must not be negative.
    return node.op_type != "ConvTranspose" or ranges[touched[0]].low >= 0.0


def _pays(graph: Graph, node: Node, nodes: NodeSet, in_int8: NodeSet) -> bool:
    """Whether an operator reads ``node`` in int8, directly or behind an activation, or may outside ``nodes``."""
    last = fused_activation(graph, node, nodes) or node
    readers = graph.consumers.get(last.outputs[0], ())
    outside = last.outputs[0] in graph.outputs or any(not nodes >> reader & 1 for reader in readers)
    return outside or any(in_int8 >> reader & 1 for reader in readers)


def _from_zero(graph: Graph, clip: Node) -> bool:
    least = graph.constants.get(clip.inputs[1]) if len(clip.inputs) > 1 else None
    return least is not None and least.size == 1 and float(least.reshape(())) == 0.0
