"""Rewrites of Resize by whole factors as a transposed convolution, with the convolution behind it or without."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import (
    Convolution,
    NodeRewrite,
    convolution,
    convolve,
    filled,
    find,
    pad,
    pair,
    sole_reader,
    standard,
)
from collage_evo.rewrites.rewrite import Draft, Replacement

_FLOORS = {("asymmetric", "floor")} | {
    (place, mode)
    for place in ("half_pixel", "pytorch_half_pixel")
    for mode in ("round_prefer_floor", "round_prefer_ceil")
}
"""Ways to choose a neighbour that are the same for whole factors: that of ``n`` is ``n // factor``."""
_COORDINATES_FROM = 11
"""The version from which Resize defines its coordinates; before, they were not the centres of pixels."""


def _repeats(graph: Graph, node: Node) -> tuple[int, ...]:
    """How often ``node`` repeats each pixel along each spatial axis; empty if it does anything else."""
    if not standard(node, "Resize") or node.attributes.get("mode", "nearest") != "nearest":
        return ()
    place = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    floors = (place, node.attributes.get("nearest_mode", "round_prefer_floor")) in _FLOORS
    return _factors(graph, node) if floors else ()


def _blends(graph: Graph, node: Node) -> tuple[int, ...]:
    """Factors by which ``node`` interpolates an image linearly between pixel centres; empty if it does not."""
    if not standard(node, "Resize") or node.attributes.get("mode") != "linear" or node.attributes.get("antialias"):
        return ()
    factors = _factors(graph, node)
    place = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    return factors if place in ("half_pixel", "pytorch_half_pixel") and len(factors) == 2 else ()


def _factors(graph: Graph, node: Node) -> tuple[int, ...]:
    """Whole factors by which a Resize enlarges each spatial axis of a float32 tensor; empty if there are none."""
    if "axes" in node.attributes or graph.opset < _COORDINATES_FROM or not filled(graph, node):
        return ()
    if graph.tensors[node.inputs[0]].dtype != "float32" or node.inputs[0] in graph.constants:
        return ()
    input_shape, output_shape = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape
    if len(input_shape) < 3 or any(m % g for g, m in zip(input_shape, output_shape, strict=True)):
        return ()
    factors = tuple(m // g for g, m in zip(input_shape, output_shape, strict=True))
    scales = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if any(node.inputs[2:3]) and (scales is None or not np.array_equal(scales, np.array(factors, scales.dtype))):
        return ()
    return factors[2:] if factors[:2] == (1, 1) and max(factors) > 1 else ()


class ResizedConvolutions:
    """Nearest neighbours and a convolution, as in decoders of diffusion models and U-Nets, without the large image.

    A pixel of the small image is multiplied by the sum of the weights that meet its copies in the large one. These
    sums are the kernel of a transposed convolution: for a factor of 2 and 3x3 it multiplies 16 times a pixel of the
    small image, where the file's form multiplies 36 times.
    """

    name = "resized-convolutions"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            factors = _repeats(graph, node)
            reader = sole_reader(graph, node.outputs[0]) if factors else None
            conv = convolution(graph, reader) if reader is not None else None
            if conv is not None and conv.x == node.outputs[0] and _fits(conv):
                yield pair(node, conv.node)

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        inside = list(members(nodes))
        resize = find(graph, inside, "Resize")
        conv = convolution(graph, find(graph, inside, "Conv"))
        assert conv is not None
        factors = _repeats(graph, resize)
        draft = Draft(graph)
        pads = [k - 1 - pad for k, pad in zip(conv.kernel * 2, conv.pads, strict=True)]
        convolve(
            draft,
            resize.inputs[0],
            _summed(conv.weights, factors),
            conv.bias,
            conv.node.outputs[0],
            transposed=True,
            strides=list(factors),
            pads=pads,
        )
        return draft.finished()


def _fits(conv: Convolution) -> bool:
    """Whether pads are smaller than the kernel: otherwise some outputs would have no input pixel."""
    within = all(pad < k for k, pad in zip(conv.kernel * 2, conv.pads, strict=True))
    return conv.plain and conv.group == 1 and within and max(conv.kernel) > 1


def _summed(weights: np.ndarray, factors: tuple[int, ...]) -> np.ndarray:
    """The transposed convolution's kernel: tap ``a + k - 1 - p`` sums tap ``p`` of k over copies ``a``."""
    kernel = np.moveaxis(weights, 0, 1).astype(np.float64)
    for axis, factor in enumerate(factors, start=2):
        size = kernel.shape[axis]
        fold = np.zeros((size + factor - 1, size))
        for copy in range(factor):
            fold[np.arange(size) + copy, size - 1 - np.arange(size)] = 1
        kernel = np.moveaxis(np.tensordot(fold, kernel, (1, axis)), 0, axis)
    return np.ascontiguousarray(kernel, np.float32)


class RepeatedPixels(NodeRewrite):
    """Nearest neighbours as a transposed convolution of each channel by ones."""

    name = "repeated-pixels"

    def fits(self, graph: Graph, node: Node) -> bool:
        return len(_repeats(graph, node)) == 2

    def write(self, draft: Draft, graph: Graph, node: Node) -> None:
        factors = _repeats(graph, node)
        _enlarge(draft, graph, node, node.inputs[0], np.ones(factors), strides=list(factors))


class BlendedPixels(NodeRewrite):
    """Linear interpolation as a transposed convolution of each channel by a pyramid, after edge padding."""

    name = "blended-pixels"

    def fits(self, graph: Graph, node: Node) -> bool:
        return bool(_blends(graph, node))

    def write(self, draft: Draft, graph: Graph, node: Node) -> None:
        factors = _blends(graph, node)
        x = pad(draft, node.inputs[0], [0, 0, 1, 1, 0, 0, 1, 1], mode="edge")
        # Removes the padded edge, and half of the pixels that a factor adds.
        pads = [factor + factor // 2 for factor in factors] * 2
        _enlarge(draft, graph, node, x, np.outer(*map(_triangle, factors)), strides=list(factors), pads=pads)


def _enlarge(draft: Draft, graph: Graph, node: Node, x: str, kernel: np.ndarray, **how: list[int]) -> None:
    """Write the result of ``node`` as a transposed convolution of each channel of ``x`` by ``kernel``."""
    channels = graph.tensors[node.inputs[0]].shape[1]
    weights = np.tile(kernel.astype(np.float32), (channels, 1, 1, 1))
    convolve(draft, x, weights, None, node.outputs[0], transposed=True, group=channels, **how)


def _triangle(factor: int) -> np.ndarray:
    """Weights of a pixel in the pixels around its centre, in steps of one ``factor``-th."""
    places = np.arange(2 * factor - 1) + 1 if factor % 2 else np.arange(2 * factor) + 0.5
    return np.asarray(1 - np.abs(places - factor) / factor)
