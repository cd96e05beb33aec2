"""Images of one column as images of one row, for convolutions and pools along them, and the operators behind.

Converters and Keras write signals as [batch, channels, length, 1]. Libraries compute several pixels of one row at a
time, so that a column is as slow as images of a pixel each (docs/rewrites.md, "The file's own form").
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from collage_evo.graph.ir.operators import ELEMENTWISE
from collage_evo.graph.normalise.other_shapes import Made, Shape, constant, follows, initializer, reshape_made, sizes

_POOLS = frozenset({"MaxPool", "AveragePool"})


class RowImages(ir.passes.InPlacePass):
    """Reshape [batch, channels, length, 1] to [batch, channels, 1, length] before a convolution that slides along it,
    and back behind what follows. Tensors without a static shape, or without elements, do not change."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        made: dict[ir.Value, Shape] = {}
        for node in model.graph:
            elementwise = node.op_type in ELEMENTWISE and follows(node, made, _alike_along)
            if elementwise or _slides(node, made):
                made[node.outputs[0]] = sizes(node.outputs[0])
        turned: dict[ir.Value, ir.Value] = {}
        for maker in filter(None, (value.producer() for value in made)):
            _turn(maker)
            if maker.op_type == "Conv":
                _turn_weights(maker, turned, model.graph)
        reshape_made(model.graph, made, _row)
        return ir.passes.PassResult(model, modified=bool(made))


def _slides(node: ir.Node, made: Made) -> bool:
    """A convolution over several pixels of a column, or a convolution or pool that follows one in the column."""
    if node.domain or len(node.outputs) != 1 or node.op_type not in {"Conv", *_POOLS}:
        return False
    image, parameters = node.inputs[0], [value for value in node.inputs[1:] if value is not None]
    weights = [array for value in parameters if (array := constant(value)) is not None]
    if constant(image) is not None or len(weights) < len(parameters):
        return False
    if not (_is_column(sizes(image)) and _is_column(sizes(node.outputs[0]))):
        return False
    kernel = node.attributes.get_ints("kernel_shape", ()) if not weights else weights[0].shape[2:]
    padded = node.attributes.get_ints("pads", (0, 0, 0, 0))
    inside = kernel[1] == 1 and padded[1] == padded[3] == 0
    return inside and (image in made or (node.op_type == "Conv" and kernel[0] > 1))


def _is_column(shape: Shape) -> bool:
    return len(shape) == 4 and shape[3] == 1 < shape[2]


def _alike_along(array: np.ndarray) -> bool:
    """Whether a constant is the same for all pixels; one of a single axis is a number, or a normalisation's own."""
    return array.ndim < 2 or math.prod(array.shape[-2:]) == 1


def _turn(node: ir.Node) -> None:
    """Swap what ``node`` does along the two axes, if it slides."""
    for name, order in (("kernel_shape", (1, 0)), ("strides", (1, 0)), ("dilations", (1, 0)), ("pads", (1, 0, 3, 2))):
        if name in node.attributes:
            values = node.attributes.get_ints(name, ())
            node.attributes[name] = ir.AttrInt64s(name, [values[place] for place in order])


def _turn_weights(node: ir.Node, turned: dict[ir.Value, ir.Value], graph: ir.Graph) -> None:
    """Let a convolution read weights of one row; ``turned`` caches those of shared weights."""
    weights = node.inputs[1]
    array = constant(weights)
    assert weights is not None
    assert array is not None
    if weights not in turned:
        turned[weights] = initializer(graph, array.reshape(_row(array.shape)), f"{weights.name}_row")
    node.replace_input_with(1, turned[weights])


def _row(shape: Shape) -> Shape:
    return shape[0], shape[1], shape[3], shape[2]
