"""Rewrite ``places-as-channels``: a convolution to few channels as one that makes neighbouring pixels as channels."""

from __future__ import annotations

import itertools
import math

import numpy as np

from collage_evo.graph.ir.graph import Graph
from collage_evo.rewrites.common import VECTOR, Convolution, ConvolutionRewrite, convolve, cut, reshape
from collage_evo.rewrites.rewrite import Draft

_COUNTS = (1, 2, 4, 8, 16)
"""Numbers of neighbouring places along an axis to try."""
_WORTH = 0.75
"""The rewrite needs at most this share of the multiplications, counting those in partly filled vectors."""


class PlacesAsChannels(ConvolutionRewrite):
    """A convolution to few channels has vectors that are mostly empty: neighbouring pixels ("places") fill them.

    The kernel of each place is embedded in a larger one, at the place's offset, with zeros around; the strides are
    multiplied by the number of places. Along an axis with a kernel of k and a stride of s, p places read
    k + (p - 1) s inputs in place of p times k. It is mainly for the last convolution of a network that makes an image
    or a mask, and for filters of one channel, as in audio.
    """

    name = "places-as-channels"

    def fits(self, graph: Graph, conv: Convolution) -> bool:
        if conv.group > 1 or set(conv.dilations) != {1}:
            return False
        sizes = graph.tensors[conv.node.outputs[0]].shape[2:]
        return _work(conv, _places(conv, sizes)) <= _WORTH * _work(conv, (1,) * len(sizes))

    def write(self, draft: Draft, graph: Graph, conv: Convolution) -> None:
        name = conv.node.outputs[0]
        batch, channels_out, *sizes = graph.tensors[name].shape
        places = _places(conv, sizes)
        steps = [-(-size // count) for size, count in zip(sizes, places, strict=True)]
        strides = [stride * count for stride, count in zip(conv.strides, places, strict=True)]
        kernel = _kernel(conv, places)
        weights = np.zeros((*places, channels_out, conv.weights.shape[1], *kernel), np.float32)
        for place in np.ndindex(*places):
            begins = [count * stride for count, stride in zip(place, conv.strides, strict=True)]
            window = tuple(slice(begin, begin + k) for begin, k in zip(begins, conv.kernel, strict=True))
            weights[(*place, ..., *window)] = conv.weights
        weights = weights.reshape(channels_out * math.prod(places), -1, *kernel)
        bias = None if conv.bias is None else np.tile(conv.bias, math.prod(places))
        read = [(step - 1) * stride + k for step, stride, k in zip(steps, strides, kernel, strict=True)]
        there = zip(graph.tensors[conv.x].shape[2:], conv.before, strict=True)
        after = [max(0, needed - size - pad) for needed, (size, pad) in zip(read, there, strict=True)]
        y = convolve(draft, conv.x, weights, bias, strides=strides, pads=[*conv.before, *after])
        whole = [step * count for step, count in zip(steps, places, strict=True)]
        cropped = whole != list(sizes)
        y = _spread(draft, y, [batch, channels_out, *whole], places, "" if cropped else name)
        if cropped:
            cut(draft, y, [0] * len(sizes), sizes, range(2, 2 + len(sizes)), name)


def _spread(draft: Draft, x: str, shape: list[int], places: tuple[int, ...], name: str) -> str:
    """A tensor of ``shape`` from ``x``, whose channels hold ``places`` of each axis, and for each place all channels.

    In between, channels are last, as in libraries' memory: places along the last axis are then in order, and places
    along others move as rows.
    """
    batch, channels, *sizes = shape
    rank = len(sizes)
    y = draft.node("Transpose", [x], perm=[0, *range(2, rank + 2), 1])
    if any(count > 1 for count in places[:-1]):
        steps = [size // count for size, count in zip(sizes, places, strict=True)]
        y = reshape(draft, y, [batch, *steps, *places, channels])
        sides = [side for axis in range(1, rank + 1) for side in (axis, axis + rank)]
        y = draft.node("Transpose", [y], perm=[0, *sides, 2 * rank + 1])
    if channels == 1:
        return reshape(draft, y, shape, name)
    y = reshape(draft, y, [batch, *sizes, channels])
    return draft.node("Transpose", [y], name, perm=[0, rank + 1, *range(1, rank + 1)])


def _kernel(conv: Convolution, places: tuple[int, ...]) -> list[int]:
    """The sizes of a kernel that covers the inputs of all ``places``."""
    rows = zip(conv.kernel, conv.strides, places, strict=True)
    return [k + (count - 1) * stride for k, stride, count in rows]


def _places(conv: Convolution, sizes: tuple[int, ...] | list[int]) -> tuple[int, ...]:
    """Number of places along each axis of an output of ``sizes``: the least work, then the fewest places."""
    counts = [[count for count in _COUNTS if count <= size] for size in sizes]
    return min(itertools.product(*counts), key=lambda places: (_work(conv, places), math.prod(places)))


def _work(conv: Convolution, places: tuple[int, ...]) -> float:
    """Multiplications for each output pixel and input channel, counting partly filled vectors as full."""
    channels_out: int = conv.weights.shape[0]
    vectors = -(-channels_out * math.prod(places) // VECTOR)
    return vectors * VECTOR * math.prod(_kernel(conv, places)) / math.prod(places)
