"""The int8 form of OpenVINO: quantisers before inputs, products without zero points, padding before convolutions.

The CPU plugin pads with the zero point. Unless that is zero, its convolutions use a slower path at the borders: along
a signal, which is an image of one row, up to 15 times as slow (1.70 and 0.12 ms: 128 channels, 128 pixels, a kernel
of 64; Xeon with AMX), along others a little. A Pad of bytes costs hardly anything but where channels are few. Where
nothing is padded, or a Pad does it, a long kernel along a row is 10 to 20 times as slow as the same along a column.
"""

from __future__ import annotations

import math

from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.windows import spatial_pads
from collage_evo.hardware.processor import this_machine
from collage_evo.precision.quantise.form import Int8Form, Layout

_FEWEST_CHANNELS = 16
"""Fewest channels of images of several rows for which a Pad pays. With 3 it loses a little, with 16 it wins a
little."""
_LONGEST_SUM = 2**15
"""Products for each number along a row, up to which the plugin takes the fast kernel; half as many again are too
many."""


def _runs_right(graph: Graph, node: Node) -> bool:
    if node.op_type == "Conv":
        # Over three axes with dilation, it writes past the end of its memory (2026.4, AMX, two threads).
        over_three = len(graph.tensors[node.inputs[0]].shape) == 5
        return not (over_three and any(step > 1 for step in node.attributes.get("dilations", ())))
    # Products of two activations, as in attention, are wrong without VNNI (2026.4: 99 %).
    return node.inputs[1] in graph.constants or not this_machine().saturates_int8


def _layout(graph: Graph, convolution: Node, shifted: bool) -> Layout:
    pads = _pads_to_write(graph, convolution) if shifted else ()
    return Layout(pads, _column_to_write(graph, convolution, pads))


def _pads_to_write(graph: Graph, node: Node) -> tuple[int, ...]:
    """Pads of an ONNX Pad before a convolution, whose zero point is not zero, in place of its own; empty where that
    does not pay."""
    before, after = _padding(graph, node)
    channels = graph.tensors[node.inputs[0]].shape[1]
    pays = any((*before, *after)) and (_is_row(graph, node) or channels >= _FEWEST_CHANNELS)
    return (0, 0, *before, 0, 0, *after) if pays else ()


def _column_to_write(graph: Graph, node: Node, pads: tuple[int, ...]) -> tuple[int, ...]:
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


INT8 = Int8Form(
    "inputs",
    _runs_right,
    # Its kernel for products of two activations takes a signed right side, and a zero point on neither.
    symmetric_products=True,
    # It subtracts a zero point of a product's input in a separate loop.
    products_from_zero=True,
    layout=_layout,
)
