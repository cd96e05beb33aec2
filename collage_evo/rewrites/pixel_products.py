"""Rewrite ``pixel-products``: a 1x1 convolution of a single pixel as a product of matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.rewrites.common import convolution, reshape
from collage_evo.rewrites.rewrite import Draft, Replacement

_BIAS_FREE_FROM = 11
"""The version from which Gemm needs no bias."""


class PixelProducts:
    """A 1x1 convolution of one pixel, as in squeeze-and-excitation blocks and at the end of networks, as Gemm.

    For more pixels it does not apply: among neighbours in a library's own layout, a product costs two changes of
    layout.
    """

    name = "pixel-products"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            found = convolution(graph, node)
            if found is not None and found.pointwise and set(graph.tensors[found.x].shape[2:]) == {1}:
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        found = convolution(graph, graph.nodes[next(members(nodes))])
        assert found is not None
        given, made = graph.tensors[found.x].shape, graph.tensors[found.node.outputs[0]].shape
        draft, matrix = Draft(graph), found.weights.reshape(made[1], given[1])
        inputs = [reshape(draft, found.x, given[:2]), draft.constant(matrix)]
        if found.bias is not None or draft.opset < _BIAS_FREE_FROM:
            inputs.append(draft.constant(np.zeros(made[1], np.float32) if found.bias is None else found.bias))
        reshape(draft, draft.node("Gemm", inputs, transB=1), made, found.node.outputs[0])
        return draft.finished()
