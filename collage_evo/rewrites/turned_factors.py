"""Rewrite ``turned-factors``: a Transpose that also turns the matrices of a product, split in two."""

from __future__ import annotations

from collections.abc import Iterator

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import filled, sole_reader, standard
from collage_evo.rewrites.rewrite import Draft, Replacement


class TurnedFactors:
    """Splits the Transpose of attention's keys into one to heads, and one directly before the product that only turns
    matrices.

    The first moves rows of memory, not single numbers; libraries fold the second into the product. A scale between
    the two stays between them.
    """

    name = "turned-factors"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            perm = _perm(graph, node)
            if perm is None or perm[-2] != len(perm) - 1 or _turned(perm) == sorted(perm):
                continue
            nodes, last, reader = 1 << node.index, node.outputs[0], sole_reader(graph, node.outputs[0])
            if reader is not None and _scales(graph, reader, last):
                nodes, last = nodes | 1 << reader.index, reader.outputs[0]
                reader = sole_reader(graph, last)
            if reader is not None and standard(reader, "MatMul") and reader.inputs[1] == last:
                yield nodes | 1 << reader.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        first, *scales, product = (graph.nodes[index] for index in members(nodes))
        perm, draft = _perm(graph, first), Draft(graph)
        assert perm is not None
        output = first.outputs[0]
        y = draft.node("Transpose", [first.inputs[0]], perm=_turned(perm))
        for node in scales:
            (y,) = draft.copy(node.protos[0], [y if name == output else name for name in node.inputs], [""])
            output = node.outputs[0]
        turned = draft.node("Transpose", [y], perm=_turned(list(range(len(perm)))))
        draft.copy(product.protos[0], [product.inputs[0], turned], product.outputs)
        return draft.finished(same={y: output})


def _perm(graph: Graph, node: Node) -> list[int] | None:
    """The permutation of ``node``; None if it is no Transpose of three axes or more."""
    if not standard(node, "Transpose") or not filled(graph, node) or node.inputs[0] in graph.constants:
        return None
    rank = len(graph.tensors[node.inputs[0]].shape)
    return [*node.attributes.get("perm", range(rank)[::-1])] if rank > 2 else None


def _turned(perm: list[int]) -> list[int]:
    """``perm`` with its last two exchanged."""
    return [*perm[:-2], perm[-1], perm[-2]]


def _scales(graph: Graph, node: Node, tensor: str) -> bool:
    """Whether ``node`` multiplies or divides ``tensor`` by a number."""
    if not (standard(node, "Mul") or standard(node, "Div")):
        return False
    others = [graph.constants.get(name) for name in node.inputs if name != tensor]
    return len(others) == 1 and others[0] is not None and others[0].size == 1 and others[0].ndim <= 1
