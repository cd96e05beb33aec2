"""Flattening of rows to three dimensions, for matrix products, layer normalisations and elementwise operators.

Converters write dense layers over images with channels last, as in ConvNeXt, with more than three dimensions.
OpenVINO (2026.4) runs them as fast as those of sequences only where they have as many dimensions (docs/rewrites.md,
"The file's own form").
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from collage_evo.graph.ir.operators import ELEMENTWISE
from collage_evo.graph.normalise.other_shapes import Shape, constant, follows, reshape_made, sizes

_NO_AXES = ELEMENTWISE - {"BatchNormalization", "PRelu"}
"""Elementwise operators that treat all axes alike."""


class FlatRows(ir.passes.InPlacePass):
    """Reshape [batch, height, width, channels] to [batch, height x width, channels] before such operators, and back
    behind what follows them. Tensors without a static shape, or without elements, do not change."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        made: dict[ir.Value, Shape] = {}
        for node in model.graph:
            elementwise = node.op_type in _NO_AXES and follows(node, made, _along_rows)
            taken = _is_product(node) or _normalises_rows(node) or elementwise
            if taken and (shape := sizes(node.outputs[0])):
                made[node.outputs[0]] = shape
        for maker in filter(None, (value.producer() for value in made)):
            if "axis" in maker.attributes:  # the last, of a layer normalisation
                maker.attributes["axis"] = ir.AttrInt64("axis", -1)
        reshape_made(model.graph, made, _flat)
        return ir.passes.PassResult(model, modified=bool(made))


def _is_product(node: ir.Node) -> bool:
    """A product of rows of more than three dimensions by a constant matrix."""
    if node.op_type != "MatMul" or node.domain:
        return False
    rows, matrix = node.inputs[0], constant(node.inputs[1])
    return constant(rows) is None and matrix is not None and matrix.ndim == 2 and len(sizes(rows)) > 3


def _normalises_rows(node: ir.Node) -> bool:
    """A LayerNormalization of each row of more than three dimensions."""
    if node.op_type != "LayerNormalization" or node.domain or len(node.outputs) != 1:
        return False
    if constant(node.inputs[0]) is not None:
        return False
    rank = len(sizes(node.inputs[0]))
    last = node.attributes.get_int("axis", -1) in (-1, rank - 1)
    parameters = (constant(value) for value in node.inputs[1:] if value is not None)
    return rank > 3 and last and all(array is not None and array.ndim == 1 for array in parameters)


def _along_rows(array: np.ndarray) -> bool:
    """Whether a constant is the same for all rows."""
    return array.ndim <= 3 and math.prod(array.shape[:-1]) == 1


def _flat(shape: Shape) -> Shape:
    return shape[0], math.prod(shape[1:-1]), shape[-1]
