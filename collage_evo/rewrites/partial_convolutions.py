"""Rewrite ``partial-convolutions``: a convolution of concatenated channels as a sum of convolutions of each part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import Convolution, convolution, convolve, find, pair, sole_reader, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

_MOST = 8
"""Parts: each has a sum to be read and written."""


class PartialConvolutions:
    """Saves the copy of a Concat; libraries add the other side of a sum inside the convolution."""

    name = "partial-convolutions"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            conv = _convolution_of(graph, node)
            if conv is not None:
                yield pair(node, conv.node)

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        concat = find(graph, list(members(nodes)), "Concat")
        conv = _convolution_of(graph, concat)
        assert conv is not None
        draft, total, begin = Draft(graph), "", 0
        how: dict[str, Any] = {"strides": list(conv.strides), "dilations": list(conv.dilations), "pads": conv.pads}
        for name in concat.inputs:
            end = begin + graph.tensors[name].shape[1]
            part = convolve(draft, name, conv.weights[:, begin:end], None if total else conv.bias, **how)
            last = conv.node.outputs[0] if end == conv.weights.shape[1] else ""
            total = draft.node("Add", [total, part], last) if total else part
            begin = end
        return draft.finished()


def _convolution_of(graph: Graph, node: Node) -> Convolution | None:
    """The ungrouped convolution that is the only reader of ``node``, a Concat along the channels."""
    if not standard(node, "Concat") or not 1 < len(node.inputs) <= _MOST:
        return None
    rank = len(graph.tensors[node.outputs[0]].shape)
    reader = sole_reader(graph, node.outputs[0])
    conv = convolution(graph, reader) if reader is not None else None
    if conv is None or conv.x != node.outputs[0] or conv.group > 1 or node.attributes["axis"] % rank != 1:
        return None
    constants = any(name in graph.constants or not graph.tensors[name].shape[1] for name in node.inputs)
    return None if constants else conv
