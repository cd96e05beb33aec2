"""A rewrite: a 1x1 convolution as a product of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator

from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.rewrites.common import convolution, reshape
from collage_evo.rewrites.rewrite import Draft, Replacement


class PointwiseProducts:
    """A 1x1 convolution as a product: of one pixel, as in squeeze-and-excitation blocks, Gemm, of an image MatMul.

    A library that convolves in a layout of its own need not bring a piece's borders into it and out of it.
    """

    name = "pointwise-products"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            found = convolution(graph, node)
            if found is not None and found.pointwise:
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        found = convolution(graph, graph.nodes[next(members(nodes))])
        assert found is not None
        given, made = graph.tensors[found.x].shape, graph.tensors[found.node.outputs[0]].shape
        draft, pixels, matrix = Draft(graph), math.prod(given[2:]), found.weights.reshape(made[1], given[1])
        if pixels == 1:
            inputs = [reshape(draft, found.x, given[:2]), draft.constant(matrix)]
            if found.bias is not None:
                inputs.append(draft.constant(found.bias))
            y = draft.node("Gemm", inputs, transB=1)
        else:
            y = draft.node("MatMul", [draft.constant(matrix), reshape(draft, found.x, (*given[:2], pixels))])
            if found.bias is not None:
                y = draft.node("Add", [y, draft.constant(found.bias.reshape(-1, 1))])
        reshape(draft, y, made, found.node.outputs[0])
        return draft.finished()
