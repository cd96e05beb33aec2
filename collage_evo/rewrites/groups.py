"""Rewrite ``merged-groups``: a grouped convolution with narrow groups as one with fewer, wider groups and zeros."""

from __future__ import annotations

import numpy as np

from collage_evo.graph.ir.graph import Graph
from collage_evo.rewrites.common import VECTOR, Convolution, ConvolutionRewrite, convolve
from collage_evo.rewrites.rewrite import Draft


class MergedGroups(ConvolutionRewrite):
    """Groups of 4 or 8 channels, as in ResNeXt, fill a part of a vector; several together are as fast as one.

    The weights between channels of different groups are zeros. Depthwise convolutions, for which libraries have
    own kernels, do not change.
    """

    name = "merged-groups"

    def fits(self, graph: Graph, conv: Convolution) -> bool:
        return _factor(conv) > 1

    def write(self, draft: Draft, graph: Graph, conv: Convolution) -> None:
        factor = _factor(conv)
        channels_out, width = conv.weights.shape[:2]
        each = channels_out // conv.group
        wide = np.zeros((channels_out, factor, width, *conv.kernel), np.float32)
        channels = np.arange(channels_out)
        wide[channels, channels // each % factor] = conv.weights
        convolve(
            draft,
            conv.x,
            wide.reshape(channels_out, factor * width, *conv.kernel),
            conv.bias,
            conv.node.outputs[0],
            strides=list(conv.strides),
            dilations=list(conv.dilations),
            pads=conv.pads,
            group=conv.group // factor,
        )


def _factor(conv: Convolution) -> int:
    """How many groups fill a vector together; 1 if one does."""
    width = conv.weights.shape[1]
    if width == 1:
        return 1
    return max((f for f in (1, 2, 4, 8) if conv.group % f == 0 and f * width <= VECTOR), default=1)
