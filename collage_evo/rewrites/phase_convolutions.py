"""Rewrite ``phase-convolutions``: a transposed convolution to few channels as a convolution and a DepthToSpace."""

from __future__ import annotations

import numpy as np

from collage_evo.graph.ir.graph import Graph
from collage_evo.rewrites.common import VECTOR, Convolution, ConvolutionRewrite, convolve, cut
from collage_evo.rewrites.rewrite import Draft


class PhaseConvolutions(ConvolutionRewrite):
    """A transposed convolution to few channels as a convolution to all of its phases, and DepthToSpace.

    An output of stride s has s times s kinds of pixels, each made by its own taps: together these are one convolution
    with s times s as many channels, on a kernel s times smaller. For few output channels, as at the end of generators
    and super-resolution, only this form fills vectors.
    """

    name = "phase-convolutions"
    op_type = "ConvTranspose"

    def fits(self, graph: Graph, conv: Convolution) -> bool:
        return _has_phases(conv)

    def write(self, draft: Draft, graph: Graph, conv: Convolution) -> None:
        stride, taps = conv.strides[0], _taps(conv)
        channels_in, channels_out = conv.weights.shape[:2]
        grown = np.zeros((channels_in, channels_out, *(count * stride for count in taps)), np.float32)
        grown[:, :, : conv.kernel[0], : conv.kernel[1]] = conv.weights
        grown = grown.reshape(channels_in, channels_out, taps[0], stride, taps[1], stride)[:, :, ::-1, :, ::-1]
        weights = grown.transpose(3, 5, 1, 0, 2, 4).reshape(stride * stride * channels_out, channels_in, *taps)
        bias = None if conv.bias is None else np.tile(conv.bias, stride * stride)
        y = convolve(draft, conv.x, weights, bias, pads=[count - 1 for count in taps] * 2)
        starts, sizes = conv.before, graph.tensors[conv.node.outputs[0]].shape[2:]
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        whole = [(graph.tensors[conv.x].shape[2 + axis] + taps[axis] - 1) * stride for axis in range(2)]
        name = conv.node.outputs[0]
        if ends == whole and not any(starts):
            draft.node("DepthToSpace", [y], name, blocksize=stride)
        else:
            cut(draft, draft.node("DepthToSpace", [y], blocksize=stride), starts, ends, (2, 3), name)


def _taps(conv: Convolution) -> tuple[int, ...]:
    """Number of inputs of an output, along each axis."""
    return tuple(-(-k // conv.strides[0]) for k in conv.kernel)


def _has_phases(conv: Convolution) -> bool:
    """Whether strides are equal and not one, output channels are few, and no output is beyond all taps."""
    if len(conv.kernel) != 2 or conv.strides[0] != conv.strides[1] or conv.strides[0] < 2:
        return False
    if conv.group > 1 or set(conv.dilations) != {1} or conv.weights.shape[1] >= VECTOR:
        return False
    more = conv.node.attributes.get("output_padding", (0, 0))
    rows = zip(conv.kernel, more, conv.after, _taps(conv), strict=True)
    return all(k + extra - pad <= taps * conv.strides[0] for k, extra, pad, taps in rows)
