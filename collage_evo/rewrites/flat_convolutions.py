"""Rewrite ``flat-convolutions``: convolutions over one or three axes as ones over two, for which libraries have more
kernels."""

from __future__ import annotations

import math

from collage_evo.graph.ir.graph import Graph
from collage_evo.rewrites.common import Convolution, ConvolutionRewrite, convolve, reshape
from collage_evo.rewrites.rewrite import Draft


class FlatConvolutions(ConvolutionRewrite):
    """A line is an image of one row; a volume in which some axes have a kernel of one is an image of the others.

    Kernels 3x1x1 and 1x1x1, as factorised networks have them, merge axes by a Reshape, which copies nothing. Frames
    of a 1x3x3 kernel become a batch, which takes two transpositions.
    """

    name = "flat-convolutions"

    def fits(self, graph: Graph, conv: Convolution) -> bool:
        return bool(_form(conv))

    def write(self, draft: Draft, graph: Graph, conv: Convolution) -> None:
        input_shape, output_shape = graph.tensors[conv.x].shape, graph.tensors[conv.node.outputs[0]].shape
        form = _form(conv)
        if form == "frames":
            batch, channels, frames = input_shape[:3]
            x = draft.node("Transpose", [conv.x], perm=[0, 2, 1, 3, 4])
            x = reshape(draft, x, (batch * frames, channels, *input_shape[3:]))
            y = _convolved(draft, conv, x, (1, 2))
            y = reshape(draft, y, (batch, frames, output_shape[1], *output_shape[3:]))
            draft.node("Transpose", [y], conv.node.outputs[0], perm=[0, 2, 1, 3, 4])
            return
        sizes = input_shape[2:]
        shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {"line": ((1, *sizes), (-1, 0))}
        if len(sizes) == 3:
            shapes["first"] = ((sizes[0], math.prod(sizes[1:])), (0, 1))
            shapes["last"] = ((math.prod(sizes[:2]), sizes[2]), (1, 2))
        image, axes = shapes[form]
        y = _convolved(draft, conv, reshape(draft, conv.x, (*input_shape[:2], *image)), axes)
        reshape(draft, y, output_shape, conv.node.outputs[0])


def _form(conv: Convolution) -> str:
    """The axes that make an image; empty if they do not."""
    if len(conv.kernel) == 1:
        return "line"
    if len(conv.kernel) != 3:
        return ""
    rows = zip(conv.kernel, conv.strides, conv.before, conv.after, strict=True)
    free = [row == (1, 1, 0, 0) for row in rows]
    if free[1] and free[2]:
        return "first"
    if free[0]:
        return "last" if free[1] else "frames"
    return ""


def _convolved(draft: Draft, conv: Convolution, x: str, axes: tuple[int, ...]) -> str:
    """The convolution of an image with two ``axes`` of the original; -1 is an axis of one."""

    def of(values: tuple[int, ...], missing: int) -> list[int]:
        return [values[axis] if axis >= 0 else missing for axis in axes]

    weights = conv.weights.reshape(*conv.weights.shape[:2], *of(conv.kernel, 1))
    return convolve(
        draft,
        x,
        weights,
        conv.bias,
        strides=of(conv.strides, 1),
        dilations=of(conv.dilations, 1),
        pads=[*of(conv.before, 0), *of(conv.after, 0)],
        group=conv.group,
    )
