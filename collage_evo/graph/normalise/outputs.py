"""Outputs that no node computes: an input that a model returns unchanged, or a constant."""

from __future__ import annotations

from copy import deepcopy

import onnx
from onnx import helper

from collage_evo.models.builder import refill


def passed_through(graph: onnx.GraphProto) -> set[str]:
    """The outputs that are inputs. The caller has them already; libraries may leave such an output unwritten."""
    constants = {tensor.name for tensor in graph.initializer}
    return {value.name for value in graph.input if value.name not in constants} & {v.name for v in graph.output}


def computed_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without the outputs that are inputs, and with nodes that make those that are constants.

    A copy, unless every output of ``model`` is computed.
    """
    computed = {name for node in model.graph.node for name in node.output}
    if all(value.name in computed for value in model.graph.output):
        return model
    copy = deepcopy(model)
    through = passed_through(copy.graph)
    remaining = [value for value in model.graph.output if value.name not in through]
    refill(copy.graph.output, remaining)
    compute_constant_outputs(copy.graph)
    return copy


def compute_constant_outputs(graph: onnx.GraphProto) -> None:
    """Let an Identity make each output that is a constant, so that a node makes every output.

    The graph's own nodes go on reading the constant. Bodies of control flow find the output under the old name, so
    the Identity comes first.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    used = {*constants, *(name for node in graph.node for name in (*node.input, *node.output))}
    for value in [value for value in graph.output if value.name in constants]:
        name = f"{value.name}_constant"
        while name in used:
            name += "_"
        constants[value.name].name = name
        for node in graph.node:
            for position, read in enumerate(node.input):
                if read == value.name:
                    node.input[position] = name
        graph.node.insert(0, helper.make_node("Identity", [name], [value.name]))
