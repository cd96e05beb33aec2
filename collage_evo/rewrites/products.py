"""Rewrites of products: joined where they share an input, and 1x1 convolutions as products."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from collage_evo.graph.ir import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import convolution, reshape, sole_reader, split, standard
from collage_evo.rewrites.rewrite import Draft, Replacement


class JoinedProducts:
    """Products of one tensor by constant matrices, as attention's Q, K and V, with their biases: one, then split."""

    name = "joined-products"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        alike: dict[tuple[str, int], list[Node]] = {}
        for node in graph.nodes:
            if _multiplies(graph, node):
                key = node.inputs[0], _bias(graph, node) is not None
                alike.setdefault(key, []).append(node)
        for nodes in alike.values():
            if len(nodes) < 2:
                continue
            site = 0
            for node in nodes:
                bias = _bias(graph, node)
                site |= 1 << node.index | (1 << bias.index if bias is not None else 0)
            if graph.is_convex(site):
                yield site

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        products = [node for node in map(graph.nodes.__getitem__, members(nodes)) if node.op_type == "MatMul"]
        draft = Draft(graph)
        matrix = np.concatenate([graph.constants[node.inputs[1]] for node in products], axis=1)
        y, ends = draft.node("MatMul", [products[0].inputs[0], draft.constant(matrix)]), products
        if nodes.bit_count() > len(products):
            sums = [_bias(graph, node) for node in products]
            ends = [node for node in sums if node is not None]
            biases = [graph.constants[_constant(graph, node)].reshape(-1) for node in ends]
            y = draft.node("Add", [y, draft.constant(np.concatenate(biases))])
        made = [node.outputs[0] for node in ends]
        split(draft, y, [graph.tensors[name].shape[-1] for name in made], made, len(graph.tensors[made[0]].shape) - 1)
        return draft.finished()


def _multiplies(graph: Graph, node: Node) -> bool:
    """Whether ``node`` multiplies what is no constant by a constant matrix."""
    if not standard(node, "MatMul") or node.inputs[0] in graph.constants or node.inputs[1] not in graph.constants:
        return False
    matrix = graph.constants[node.inputs[1]]
    return matrix.ndim == 2 and matrix.dtype == np.float32 and len(graph.tensors[node.inputs[0]].shape) > 1


def _constant(graph: Graph, node: Node) -> str:
    """The constant that ``node`` adds; empty if there is none."""
    return next((name for name in node.inputs if name in graph.constants), "")


def _bias(graph: Graph, node: Node) -> Node | None:
    """The Add of one constant for each column, if that alone reads what ``node`` makes."""
    reader = sole_reader(graph, node.outputs[0])
    if reader is None or not standard(reader, "Add") or not (name := _constant(graph, reader)):
        return None
    shape, columns = graph.constants[name].shape, graph.tensors[node.outputs[0]].shape[-1]
    return reader if graph.constants[name].size == columns == (shape or (0,))[-1] and len(shape) == 1 else None


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
