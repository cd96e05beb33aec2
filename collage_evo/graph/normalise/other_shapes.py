"""Reshaping of operators: they work on tensors of another shape, with the same elements in the same order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

Shape = tuple[int, ...]
Made = Mapping[ir.Value, Shape]
"""Tensors to reshape, with their present shape."""


def reshape_made(graph: ir.Graph, made: Made, shape_for: Callable[[Shape], Shape]) -> None:
    """Let the makers of ``made`` read and make tensors of other shapes, with Reshapes between them and the other
    operators. The caller has to change their attributes and constants.
    """
    inside: dict[ir.Value, ir.Value] = {}
    for node in list(filter(None, (value.producer() for value in made))):
        for position, value in enumerate(node.inputs):
            if value is not None and value not in made and constant(value) is None:
                if value not in inside:
                    reshape = _reshape(value, shape_for(sizes(value)), graph, f"{value.name}_rows")
                    graph.insert_before(node, reshape)
                    inside[value] = reshape.outputs[0]
                node.replace_input_with(position, inside[value])
    for value, shape in made.items():
        value.shape = ir.Shape(shape_for(shape))
        outside = [(use.node, use.idx) for use in value.uses() if use.node.outputs[0] not in made]
        if outside or value.is_graph_output():
            _give_back(value, shape, outside, graph)


def follows(node: ir.Node, made: Made, may_read: Callable[[np.ndarray], bool]) -> bool:
    """Whether an elementwise ``node`` makes one element for each that it reads of ``made``, and otherwise only reads
    constants that it ``may_read``.
    """
    if node.domain or len(node.outputs) != 1:
        return False
    shape = sizes(node.outputs[0])
    read = [value for value in node.inputs if value is not None]
    computed = [value for value in read if constant(value) is None]
    alike = bool(computed) and all(value in made and made[value] == shape for value in computed)
    return alike and all(may_read(array) for value in read if (array := constant(value)) is not None)


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The constant that ``value`` is; None where it is none."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def initializer(graph: ir.Graph, array: np.ndarray, name: str) -> ir.Value:
    """A new initializer, called ``name`` or similarly: the file may use that name already."""
    while name in graph.initializers:
        name += "_"
    value = ir.Value(name=name, const_value=ir.tensor(array))
    value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
    graph.register_initializer(value)
    return value


def sizes(value: ir.Value | None) -> Shape:
    """The static shape of a tensor with elements; empty for other tensors."""
    shape = None if value is None else value.shape
    return shape.numpy() if shape is not None and shape.is_static() and 0 not in shape.numpy() else ()


def _give_back(value: ir.Value, shape: Shape, outside: Sequence[tuple[ir.Node, int]], graph: ir.Graph) -> None:
    """Let the readers ``outside`` have ``value`` in its own ``shape``, under its own name."""
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


def _reshape(value: ir.Value, shape: Shape, graph: ir.Graph, name: str | None) -> ir.Node:
    wanted = initializer(graph, np.array(shape, np.int64), f"{name}_shape")
    node = ir.Node("", "Reshape", [value, wanted])
    output = node.outputs[0]
    output.name, output.shape, output.type = name, ir.Shape(shape), value.type
    return node
