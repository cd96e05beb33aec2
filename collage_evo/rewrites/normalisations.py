"""Rewrite ``normalised-rows``: an instance normalisation as a layer normalisation of rows."""

from __future__ import annotations

import math

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.rewrites.common import NodeRewrite, filled, reshape, standard
from collage_evo.rewrites.rewrite import Draft

_EXISTS_FROM = 17
"""The version of ONNX's operators that has LayerNormalization."""


class NormalisedRows(NodeRewrite):
    """InstanceNormalization as LayerNormalization of each channel as a row, then scale and bias of the channels.

    A channel of one pixel is excluded: only its bias, and rounding, would remain.
    """

    name = "normalised-rows"

    def fits(self, graph: Graph, node: Node) -> bool:
        if graph.opset < _EXISTS_FROM or not standard(node, "InstanceNormalization"):
            return False
        constant = [name in graph.constants for name in node.inputs] == [False, True, True]
        input_ = graph.tensors[node.inputs[0]]
        return constant and input_.dtype == "float32" and filled(graph, node) and math.prod(input_.shape[2:]) > 1

    def write(self, draft: Draft, graph: Graph, node: Node) -> None:
        shape = graph.tensors[node.inputs[0]].shape
        scale, bias = (graph.constants[name].reshape(-1, *[1] * (len(shape) - 2)) for name in node.inputs[1:])
        row = math.prod(shape[2:])
        x = reshape(draft, node.inputs[0], (*shape[:2], row))
        ones, zeros = draft.constant(np.ones(row, np.float32)), draft.constant(np.zeros(row, np.float32))
        epsilon = float(node.attributes.get("epsilon", 1e-5))
        y = reshape(draft, draft.node("LayerNormalization", [x, ones, zeros], axis=-1, epsilon=epsilon), shape)
        y = draft.node("Mul", [y, draft.constant(scale)])
        draft.node("Add", [y, draft.constant(bias)], node.outputs[0])
