"""Rewrite ``merged-groups``: a grouped convolution with narrow groups as one with fewer, wider groups and zeros."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.rewrites.common import VECTOR, Convolution, convolution, convolve
from collage_evo.rewrites.rewrite import Draft, Replacement


class MergedGroups:
    """Groups of 4 or 8 channels, as in ResNeXt, fill a part of a vector; several together are as fast as one.

    The weights between channels of different groups are zeros. Depthwise convolutions, for which libraries have
    own kernels, do not change.
    """

    name = "merged-groups"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            found = convolution(graph, node)
            if found is not None and _factor(found) > 1:
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        found = convolution(graph, graph.nodes[next(members(nodes))])
        assert found is not None
        factor = _factor(found)
        made, width = found.weights.shape[:2]
        each = made // found.group
        wide = np.zeros((made, factor, width, *found.kernel), np.float32)
        channels = np.arange(made)
        wide[channels, channels // each % factor] = found.weights
        draft = Draft(graph)
        convolve(
            draft,
            found.x,
            wide.reshape(made, factor * width, *found.kernel),
            found.bias,
            found.node.outputs[0],
            strides=list(found.strides),
            dilations=list(found.dilations),
            pads=found.pads,
            group=found.group // factor,
        )
        return draft.finished()


def _factor(found: Convolution) -> int:
    """How many groups fill a vector together; 1 if one does."""
    width = found.weights.shape[1]
    if width == 1:
        return 1
    return max((f for f in (1, 2, 4, 8) if found.group % f == 0 and f * width <= VECTOR), default=1)
