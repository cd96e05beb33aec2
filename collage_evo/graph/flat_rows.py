"""Rows along the last axis: products by a matrix and layer normalisations of more than three dimensions, and the
elementwise operators that follow them, work on three.

Dense layers over images with channels last, as in ConvNeXt, come so out of converters. OpenVINO (2026.4) runs them as
fast as those of sequences only where they have as many dimensions (docs/rewrites.md, "The file's own form").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from collage_evo.graph.operators import ELEMENTWISE

_NO_AXES = ELEMENTWISE - {"BatchNormalization", "PRelu"}
"""Those that treat all axes alike."""


class FlatRows(ir.passes.InPlacePass):
    """[batch, height, width, channels] becomes [batch, height times width, channels] before such operators, and comes
    back behind what follows them. What has no static shape, or no element, stays as it is."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        made: dict[ir.Value, tuple[int, ...]] = {}
        """What is to be of three dimensions, with the shape that it has now."""
        for node in model.graph:
            taken = _is_product(node) or _normalises_rows(node) or _follows(node, made)
            if taken and (shape := _sizes(node.outputs[0])):
                made[node.outputs[0]] = shape
        rows: dict[ir.Value, ir.Value] = {}
        for node in list(filter(None, (value.producer() for value in made))):
            if "axis" in node.attributes:  # the last, of a layer normalisation
                node.attributes["axis"] = ir.AttrInt64("axis", -1)
            for position, value in enumerate(node.inputs):
                if value is not None and value not in made and _const(value) is None:
                    if value not in rows:
                        reshape = _reshape(value, _flat(_sizes(value)), model.graph, f"{value.name}_rows")
                        model.graph.insert_before(node, reshape)
                        rows[value] = reshape.outputs[0]
                    node.replace_input_with(position, rows[value])
        for value, shape in made.items():
            value.shape = ir.Shape(_flat(shape))
            outside = [(use.node, use.idx) for use in value.uses() if use.node.outputs[0] not in made]
            if outside or value.is_graph_output():
                _give_back(value, shape, outside, model.graph)
        return ir.passes.PassResult(model, modified=bool(made))


def _is_product(node: ir.Node) -> bool:
    """A product of rows of more than three dimensions by a constant matrix."""
    if node.op_type != "MatMul" or node.domain:
        return False
    rows, matrix = node.inputs[0], _const(node.inputs[1])
    return _const(rows) is None and matrix is not None and matrix.ndim == 2 and len(_sizes(rows)) > 3


def _normalises_rows(node: ir.Node) -> bool:
    """A LayerNormalization of each row of more than three dimensions."""
    if node.op_type != "LayerNormalization" or node.domain or len(node.outputs) != 1:
        return False
    if _const(node.inputs[0]) is not None:
        return False
    rank = len(_sizes(node.inputs[0]))
    last = node.attributes.get_int("axis", -1) in (-1, rank - 1)
    given = (_const(value) for value in node.inputs[1:] if value is not None)
    return rank > 3 and last and all(array is not None and array.ndim == 1 for array in given)


def _follows(node: ir.Node, made: dict[ir.Value, tuple[int, ...]]) -> bool:
    """Whether ``node`` gives an element for each of those in ``made`` that it reads, and reads constants besides."""
    if node.op_type not in _NO_AXES or node.domain or len(node.outputs) != 1:
        return False
    shape = _sizes(node.outputs[0])
    read = [value for value in node.inputs if value is not None]
    given = [value for value in read if _const(value) is None]
    alike = bool(given) and all(value in made and made[value] == shape for value in given)
    return alike and all(_along_rows(array) for value in read if (array := _const(value)) is not None)


def _along_rows(array: np.ndarray) -> bool:
    """Whether a constant is the same for all rows."""
    return array.ndim <= 3 and math.prod(array.shape[:-1]) == 1


def _const(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def _sizes(value: ir.Value | None) -> tuple[int, ...]:
    """The static shape of a tensor with elements; empty of others."""
    shape = None if value is None else value.shape
    return shape.numpy() if shape is not None and shape.is_static() and 0 not in shape.numpy() else ()


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[0], math.prod(shape[1:-1]), shape[-1]


def _give_back(
    value: ir.Value, shape: tuple[int, ...], outside: Sequence[tuple[ir.Node, int]], graph: ir.Graph
) -> None:
    """Let those ``outside`` read ``value`` in its own ``shape``, under its own name."""
    name, value.name = value.name, f"{value.name}_rows"
    node = _reshape(value, shape, graph, name)
    maker = value.producer()
    assert maker is not None
    graph.insert_after(maker, node)
    for reader, position in outside:
        reader.replace_input_with(position, node.outputs[0])
    for place, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[place] = node.outputs[0]


def _reshape(value: ir.Value, shape: tuple[int, ...], graph: ir.Graph, name: str | None) -> ir.Node:
    wanted = ir.Value(name=f"{name}_shape", const_value=ir.tensor(np.array(shape, np.int64)))
    wanted.shape, wanted.dtype = ir.Shape((len(shape),)), ir.DataType.INT64
    graph.register_initializer(wanted)
    node = ir.Node("", "Reshape", [value, wanted])
    made = node.outputs[0]
    made.name, made.shape, made.type = name, ir.Shape(shape), value.type
    return node
