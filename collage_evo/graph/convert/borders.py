"""Renaming of a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import onnx

from collage_evo.graph.convert.extract import renamed_node


def with_border_names(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """``model`` with its inputs (without constants) and outputs renamed, in order.

    An inner tensor that has one of these names gets another. ``model`` itself does not change.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    old = [value.name for value in graph.input if value.name not in constants]
    old += [value.name for value in graph.output]
    new = [*inputs, *outputs]
    if old == new:
        return model
    inside = {*constants, *(name for node in graph.node for name in node.output)} - set(old)
    names_used = {*old, *new, *inside}
    names = {"": "", **{name: _fresh(name, names_used) if name in new else name for name in sorted(inside)}}
    names.update(zip(old, new, strict=True))
    copy = deepcopy(model)
    del copy.graph.node[:], copy.graph.value_info[:]
    for node in graph.node:
        renamed = renamed_node(node, names)
        renamed.name = node.name
        copy.graph.node.append(renamed)
    for value in (*copy.graph.input, *copy.graph.output, *copy.graph.initializer):
        value.name = names.get(value.name, value.name)
    return copy


def _fresh(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    used.add(name)
    return name
