"""Rewrite ``joined-products``: products of few rows by the same weights as a single product with split rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import filled, reshape, split, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

_MOST_ROWS = 16
"""Most rows of a product. Chosen: with more, arithmetic bounds it and no longer the reading of its weights."""


class JoinedProducts:
    """Products of a few rows each by the same constant weights, none of which waits for another.

    A recurrence that the exporter unrolled multiplies each step's input by the same weights, and reads them from
    memory again for each step; a single product of all inputs reads them once.
    """

    name = "joined-products"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        groups: dict[tuple[object, ...], list[NodeSet]] = {}
        for node in graph.nodes:
            if (alike := _alike(graph, node)) is None:
                continue
            groups_of_kind = groups.setdefault(alike, [])
            for place, group in enumerate(groups_of_kind):
                if not graph.anc[node.index] & group:
                    groups_of_kind[place] |= 1 << node.index
                    break
            else:
                groups_of_kind.append(1 << node.index)
        sites = [group for groups_of_kind in groups.values() for group in groups_of_kind if group.bit_count() > 1]
        yield from sorted(sites, key=lambda nodes: -_saved(graph, nodes))  # convex: no path joins two members

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        chosen, draft = [graph.nodes[index] for index in members(nodes)], Draft(graph)
        shapes = [graph.tensors[node.inputs[0]].shape for node in chosen]
        rows = [math.prod(shape[:-1]) for shape in shapes]
        # OpenVINO 2026.4 fails to quantise a Concat of rows, but not one of columns.
        parts = [
            node.inputs[0] if shape[:-1] == (1,) else reshape(draft, node.inputs[0], (1, count * shape[-1]))
            for node, shape, count in zip(chosen, shapes, rows, strict=True)
        ]
        x = reshape(draft, draft.node("Concat", parts, axis=1), (sum(rows), shapes[0][-1]))
        y = draft.copy(chosen[0].protos[0], [x, *chosen[0].inputs[1:]], [""])[0]
        outputs = [node.outputs[0] for node in chosen]
        ends = split(draft, y, rows, 0, [name if len(graph.tensors[name].shape) == 2 else "" for name in outputs])
        for end, name in zip(ends, outputs, strict=True):
            if end != name:
                reshape(draft, end, graph.tensors[name].shape, name)
        return draft.finished()


def _alike(graph: Graph, node: Node) -> tuple[object, ...] | None:
    """The common key of joinable products: weights, bias, attributes; None if ``node`` is not of few rows."""
    if not (standard(node, "MatMul") or standard(node, "Gemm")) or not filled(graph, node):
        return None
    shape, weights = graph.tensors[node.inputs[0]].shape, graph.constants.get(node.inputs[1])
    if node.inputs[0] in graph.constants or weights is None or weights.ndim != 2 or len(shape) < 2:
        return None
    if math.prod(shape[:-1]) > _MOST_ROWS or node.attributes.get("transA"):
        return None
    bias = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if any(node.inputs[2:]) and (bias is None or math.prod(bias.shape[:-1]) > 1):
        return None
    return (node.op_type, *node.inputs[1:], *sorted(node.attributes.items()))


def _saved(graph: Graph, nodes: NodeSet) -> int:
    """Bytes saved by reading weights once, in place of once for each of ``nodes``."""
    weights = graph.nodes[next(members(nodes))].inputs[1]
    return (nodes.bit_count() - 1) * graph.tensors[weights].nbytes
