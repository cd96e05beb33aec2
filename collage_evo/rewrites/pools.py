"""Rewrites of pools: the mean of an image as a reduction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.rewrites.common import AXES_FROM, standard
from collage_evo.rewrites.rewrite import Draft, Replacement


class MeanPools:
    """GlobalAveragePool as ReduceMean over the image."""

    name = "mean-pools"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            if standard(node, "GlobalAveragePool") and graph.tensors[node.inputs[0]].dtype == "float32":
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        node = graph.nodes[next(members(nodes))]
        axes = list(range(2, len(graph.tensors[node.inputs[0]].shape)))
        draft = Draft(graph)
        if draft.opset >= AXES_FROM:
            draft.node("ReduceMean", [node.inputs[0], draft.constant(np.array(axes, np.int64))], node.outputs[0])
        else:
            draft.node("ReduceMean", [node.inputs[0]], node.outputs[0], axes=axes)
        return draft.finished()
