"""Layout of int8 convolutions for OpenVINO's fast kernel: padding before them, and columns in place of rows.

OpenVINO pads with the zero point. Unless that is zero, its convolutions use a slower path at the borders: along a
signal, which is an image of one row, up to 15 times as slow (1.70 and 0.12 ms: 128 channels, 128 pixels, a kernel of
64; Xeon with AMX), along others a little. A Pad of bytes costs hardly anything but where channels are few. Where
nothing is padded, or a Pad does it, a long kernel along a row is 10 to 20 times as slow as the same along a column.
"""

from __future__ import annotations

import math

from collage_evo.graph.ir import Graph, Node
from collage_evo.graph.windows import spatial_pads

_FEWEST_CHANNELS = 16
"""Fewest channels of images of several rows for which a Pad pays. With 3 it loses a little, with 16 it wins a
little."""
_LONGEST_SUM = 2**15
"""Products for each number along a row, up to which OpenVINO takes the fast kernel; half as many again are too
many."""


def pads_to_write(graph: Graph, node: Node) -> tuple[int, ...]:
    """Pads of an ONNX Pad before a convolution, whose zero point is not zero, in place of its own; empty where that
    does not pay."""
    before, after = _padding(graph, node)
    channels = graph.tensors[node.inputs[0]].shape[1]
    pays = any((*before, *after)) and (_is_row(graph, node) or channels >= _FEWEST_CHANNELS)
    return (0, 0, *before, 0, 0, *after) if pays else ()


def column_to_write(graph: Graph, node: Node, pads: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which the input of a convolution, with ``pads`` around it, is a column; empty where that does not
    pay."""
    before, after = _padding(graph, node)
    still_padded = any((*before, *after)) and not pads
    long = math.prod(graph.constants[node.inputs[1]].shape[1:]) > _LONGEST_SUM
    if still_padded or not long or not _is_row(graph, node):
        return ()
    batch, channels, *_, length = graph.tensors[node.inputs[0]].shape
    return (batch, channels, length + before[-1] + after[-1], 1)


def _padding(graph: Graph, node: Node) -> tuple[list[int], list[int]]:
    return spatial_pads(graph, node, graph.constants[node.inputs[1]].shape[2:])


def _is_row(graph: Graph, node: Node) -> bool:
    """Whether a kernel of one row slides over an image of one row, or over a single spatial axis."""
    shapes = graph.tensors[node.inputs[0]].shape, graph.constants[node.inputs[1]].shape
    return all(len(shape) <= 4 and math.prod(shape[2:-1]) == 1 for shape in shapes)
