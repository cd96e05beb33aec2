"""The weights-in-int8 transform, for products bounded by reading their weights.

It needs no data, and reads a quarter of the bytes. ``INT8_WEIGHTS`` is standard ONNX: a DequantizeLinear with a scale
for each output, which the library computes while it multiplies in float32. ``INT8_BLOCKS`` is the operator
MatMulNBits: blocks of weights along the sum share a scale, blocks of activations are rounded at run time, and
integers are multiplied.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx
from onnx import helper

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.graph.ir.operators import CONTRIBUTED
from collage_evo.graph.ir.weights import array_of
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.quantise.rules import Ranges, constant_products
from collage_evo.precision.quantise.scales import quantise_weights, weight_scales
from collage_evo.precision.transforms.transform import Data, Draft, Operators, Transform, Trial

MOST_ROWS = 8
"""With more rows to multiply, computing takes longer than reading the weights."""
LEAST_WEIGHTS = 2**18
"""Fewer are read in less time than a change of precision is worth."""
_BLOCK = 128
_MIDDLE = 128
"""The integer that stands for zero."""
_ROUNDED = 4
"""Accuracy level of MatMulNBits: activations in int8. By others the weights become float32 first, which is slow."""


@dataclass(frozen=True)
class Weights(Transform):
    """One of ``PACKED``, for products whose weights take longer to read than to multiply by."""

    into_rewritten: ClassVar[bool] = False

    def sites(self, graph: Graph, nodes: NodeSet, data: Data) -> NodeSet:
        """Large products, for few rows."""
        products = constant_products(graph, nodes)
        return node_set(index for index in members(products) if _bounded_by_weights(graph, graph.nodes[index]))

    def apply(self, draft: Draft, nodes: NodeSet) -> None:
        stored = {tensor.name: tensor for tensor in draft.model.graph.initializer}

        def packed(proto: onnx.NodeProto) -> Operators:
            return packed_product(proto, array_of(stored[proto.input[1]]), self.arithmetic)

        draft.replace(nodes, self.arithmetic, packed)

    def trial(self, graph: Graph, node: Node, ranges: Ranges) -> Trial:
        """The trial uses the same operators as pieces do."""
        weights = graph.constants[node.inputs[1]]
        return Trial(instead=partial(packed_product, weights=weights, kind=self.arithmetic))


def _bounded_by_weights(graph: Graph, node: Node) -> bool:
    rows = math.prod(graph.tensors[node.inputs[0]].shape[:-1])
    return rows <= MOST_ROWS and graph.constants[node.inputs[1]].size >= LEAST_WEIGHTS


def packed_product(proto: onnx.NodeProto, weights: np.ndarray, kind: Arithmetic) -> Operators:
    """The operators and constants of a MatMul or Gemm by ``weights``, its second input, in ``kind``.

    Operators are named after ``proto``, because profiles are read by their names.
    """
    transposed = any(attribute.name == "transB" and attribute.i for attribute in proto.attribute)
    stem = f"{proto.input[1]}_{kind.name.lower()}{'_t' if transposed else ''}"
    if kind is Arithmetic.INT8_WEIGHTS:
        return _by_columns(proto, weights, 0 if transposed else 1, stem)
    return _by_blocks(proto, weights.T if transposed else weights, stem)


def _by_columns(proto: onnx.NodeProto, weights: np.ndarray, axis: int, stem: str) -> Operators:
    scales = weight_scales(weights, axis)
    constants = {f"{stem}_q": quantise_weights(weights, scales, axis), f"{stem}_scale": scales}
    exact = helper.make_node(
        "DequantizeLinear", list(constants), [f"{proto.output[0]}_weights"], f"{proto.name}_weights", axis=axis
    )
    product = deepcopy(proto)
    product.input[1] = exact.output[0]
    return [exact, product], constants


def _by_blocks(proto: onnx.NodeProto, weights: np.ndarray, stem: str) -> Operators:
    """MatMulNBits by ``weights`` [inputs, outputs], which it has as [outputs, blocks, inputs of a block]."""
    inputs, outputs = weights.shape
    blocks = -(-inputs // _BLOCK)
    padded = np.zeros((outputs, blocks * _BLOCK), np.float32)
    padded[:, :inputs] = weights.T
    scales = weight_scales(padded.reshape(-1, _BLOCK), 0)
    numbers = quantise_weights(padded.reshape(-1, _BLOCK), scales, 0)
    shifted = (numbers.astype(np.int16) + _MIDDLE).astype(np.uint8).reshape(outputs, blocks, _BLOCK)
    constants = {f"{stem}_q": shifted, f"{stem}_scale": scales.reshape(outputs, blocks)}
    bias = len(proto.input) > 2 and bool(proto.input[2])
    output = f"{proto.output[0]}_raw" if bias else proto.output[0]
    product = helper.make_node(
        "MatMulNBits", [proto.input[0], *constants], [output], proto.name, domain=CONTRIBUTED,
        K=inputs, N=outputs, bits=8, block_size=_BLOCK, accuracy_level=_ROUNDED,
    )  # fmt: skip
    if not bias:
        return [product], constants
    return [product, helper.make_node("Add", [output, proto.input[2]], proto.output, f"{proto.name}_bias")], constants
