"""Rewrite ``gathered-channels``: a shuffle of channels as a single Gather."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collage_evo.graph.ir import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import sole_reader, standard
from collage_evo.rewrites.rewrite import Draft, Replacement


class GatheredChannels:
    """Reshape, Transpose and Reshape that reorder whole channels, as in ShuffleNet: whole planes are copied."""

    name = "gathered-channels"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            chain = _shuffle(graph, node)
            if chain:
                yield sum(1 << each.index for each in chain)

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        chain = [graph.nodes[index] for index in members(nodes)]
        inner = graph.tensors[chain[0].outputs[0]].shape
        groups = inner[1]
        order = np.arange(groups * inner[2], dtype=np.int64).reshape(groups, -1).T.reshape(-1)
        draft = Draft(graph)
        draft.node("Gather", [chain[0].inputs[0], draft.constant(order)], chain[-1].outputs[0], axis=1)
        return draft.finished()


def _shuffle(graph: Graph, first: Node) -> tuple[Node, ...]:
    """The three operators of a shuffle that begins with ``first``; empty if it is none."""
    if not standard(first, "Reshape") or first.inputs[0] in graph.constants:
        return ()
    turn = sole_reader(graph, first.outputs[0])
    if turn is None or not standard(turn, "Transpose"):
        return ()
    last = sole_reader(graph, turn.outputs[0])
    if last is None or not standard(last, "Reshape") or last.inputs[0] != turn.outputs[0]:
        return ()
    given, inner = graph.tensors[first.inputs[0]].shape, graph.tensors[first.outputs[0]].shape
    if len(inner) != len(given) + 1 or len(given) < 2 or graph.tensors[last.outputs[0]].shape != given:
        return ()
    swapped = [0, 2, 1, *range(3, len(inner))]
    split = (inner[0], inner[1] * inner[2], *inner[3:]) == given
    return (first, turn, last) if split and list(turn.attributes.get("perm", ())) == swapped else ()
