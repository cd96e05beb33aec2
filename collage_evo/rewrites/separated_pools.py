"""Rewrite ``separated-pools``: a maximum over a square as one over each axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collage_evo.graph.ir import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import filled, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

_LARGE = 5
"""Edge of a window from which two passes are less work than one."""


class SeparatedPools:
    """A maximum over a large window, as in spatial pyramids, as one over columns and one over rows."""

    name = "separated-pools"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            if _is_large(graph, node):
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        node = graph.nodes[next(members(nodes))]
        kernel, pads = node.attributes["kernel_shape"], node.attributes.get("pads", (0, 0, 0, 0))
        # Operator sets before 10 have no dilations: they are written only where the file has them.
        apart = {name: node.attributes[name] for name in ("strides", "dilations") if name in node.attributes}
        rows: dict[str, Any] = {name: [value[0], 1] for name, value in apart.items()}
        columns: dict[str, Any] = {name: [1, value[1]] for name, value in apart.items()}
        draft, x = Draft(graph), node.inputs[0]
        y = draft.node("MaxPool", [x], kernel_shape=[kernel[0], 1], pads=[pads[0], 0, pads[2], 0], **rows)
        draft.node(
            "MaxPool", [y], node.outputs[0], kernel_shape=[1, kernel[1]], pads=[0, pads[1], 0, pads[3]], **columns
        )
        return draft.finished()


def _is_large(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a maximum over a window of an image that is large along both axes."""
    attributes = node.attributes
    if not standard(node, "MaxPool") or not filled(graph, node):
        return False
    if len(attributes["kernel_shape"]) != 2 or min(attributes["kernel_shape"]) < _LARGE:
        return False
    if attributes.get("ceil_mode", 0) or attributes.get("auto_pad", "NOTSET") != "NOTSET" or len(node.outputs) > 1:
        return False
    return graph.tensors[node.inputs[0]].dtype == "float32"
