"""Rewrite ``separated-pools``: a maximum over a square as one over each axis."""

from __future__ import annotations

from typing import Any

from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.rewrites.common import NodeRewrite, filled, standard
from collage_evo.rewrites.rewrite import Draft

_LARGE = 5
"""Edge of a window from which two passes are less work than one."""


class SeparatedPools(NodeRewrite):
    """A maximum over a large window, as in spatial pyramids, as one over columns and one over rows."""

    name = "separated-pools"

    def fits(self, graph: Graph, node: Node) -> bool:
        """Whether ``node`` is a maximum over a window of an image that is large along both axes."""
        attributes = node.attributes
        if not standard(node, "MaxPool") or not filled(graph, node) or len(node.outputs) > 1:
            return False
        if len(attributes["kernel_shape"]) != 2 or min(attributes["kernel_shape"]) < _LARGE:
            return False
        if attributes.get("ceil_mode", 0) or attributes.get("auto_pad", "NOTSET") != "NOTSET":
            return False
        return graph.tensors[node.inputs[0]].dtype == "float32"

    def write(self, draft: Draft, graph: Graph, node: Node) -> None:
        kernel, pads = node.attributes["kernel_shape"], node.attributes.get("pads", (0, 0, 0, 0))
        # Operator sets before 10 have no dilations: they are written only where the file has them.
        apart = {name: node.attributes[name] for name in ("strides", "dilations") if name in node.attributes}
        rows: dict[str, Any] = {name: [value[0], 1] for name, value in apart.items()}
        columns: dict[str, Any] = {name: [1, value[1]] for name, value in apart.items()}
        y = draft.node("MaxPool", node.inputs, kernel_shape=[kernel[0], 1], pads=[pads[0], 0, pads[2], 0], **rows)
        draft.node(
            "MaxPool", [y], node.outputs[0], kernel_shape=[1, kernel[1]], pads=[0, pads[1], 0, pads[3]], **columns
        )
