"""Operators that TVM's ONNX front end gets wrong, with the reasons.

ONNX's backend node tests (``benchmarks/node_tests.py``) or the conformance suite found each with TVM 0.27.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from collage_evo.backends.checks import (
    Rule,
    by_whole_numbers,
    casts_to_whole,
    constant,
    dtype_of,
    inexact_near_zero,
    other_floats,
    refused_by,
    takes_small_for_zero,
    when,
)
from collage_evo.graph.ir.graph import Graph, Node

_VANISHING = ("Sigmoid", "Softplus", "Softmax")
"""Operators that return zero for the smallest numbers."""
_LONGEST = 2**12
"""Numbers of a sum: chosen, see :func:`_long_sum`."""


def refusal(graph: Graph, node: Node) -> str:
    """Why TVM must not compile ``node``; empty if no fault is known."""
    reason = takes_small_for_zero(graph, node, _VANISHING) or inexact_near_zero(graph, node, ("Tanh",))
    return reason or refused_by(_RULES, graph, node) or other_floats(graph, node)


def _divides(graph: Graph, node: Node) -> str:
    """The processor ends a process that divides an integer by 0, or the least one by -1."""
    from collage_evo.graph.check.scopes import settled  # serving does not need it

    divisor = constant(graph, node, 1)
    known = divisor is not None and not np.isin(divisor, (0, -1)).any()
    floats = any("float" in dtype_of(graph, name) for name in (*node.inputs, *node.outputs))
    safe = floats or known or settled(graph, node.outputs)
    return "" if safe else "a divisor that may be 0 or -1 ends the process"


def _pool(graph: Graph, node: Node) -> str:
    if node.attributes.get("auto_pad", "NOTSET") == "SAME_LOWER":
        return "with SAME_LOWER another output size is computed"
    return _FIRST_OUTPUT_ONLY(graph, node)


def _resize(graph: Graph, node: Node) -> str:
    if node.attributes.get("mode", "nearest") != "nearest":
        return "other than nearest was not found right"
    if not all(graph.tensors[name].static for name in (node.inputs[0], node.outputs[0])):
        return "its sizes are not known"
    if not by_whole_numbers(graph, node):
        return "other than to whole multiples comes out wrong"
    before, after = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    return "" if before[:2] == after[:2] else "channels and samples keep their number"


def _long_sum(graph: Graph, node: Node) -> str:
    """It adds up in one number. Around 293 with a deviation of 0.5, what is left of 12,544 numbers without their mean
    errs by 0.1 %, of 50,176 by 0.4 % (OpenVINO: 0.01 and 0.05 %)."""
    shape = graph.tensors[node.inputs[0]].shape
    if node.op_type == "LayerNormalization":
        first = int(node.attributes.get("axis", -1)) % max(len(shape), 1)
        added = math.prod(shape[first:])
    elif node.op_type == "InstanceNormalization":
        added = math.prod(shape[2:])
    else:
        readers = (graph.nodes[index] for index in graph.consumers.get(node.outputs[0], ()))
        if all(reader.op_type != "Sub" for reader in readers):
            return ""
        added = math.prod(shape) // (math.prod(graph.tensors[node.outputs[0]].shape) or 1)
    return f"a mean of {added} numbers far from zero loses digits" if added > _LONGEST else ""


_FIRST_OUTPUT_ONLY = when(lambda graph, node: any(node.outputs[1:]), "only the first output is computed right")
_INTEGERS = when(
    lambda graph, node: "int" in dtype_of(graph, node.inputs[0]), "the sum of integers may not fit their type"
)
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    "Resize": _resize,
    "ConvTranspose": when(lambda graph, node: "output_shape" in node.attributes, "output_shape is not obeyed"),
    **dict.fromkeys(("Div", "Mod"), _divides),
    "BatchNormalization": _FIRST_OUTPUT_ONLY,
    "LayerNormalization": lambda graph, node: _FIRST_OUTPUT_ONLY(graph, node) or _long_sum(graph, node),
    **dict.fromkeys(("InstanceNormalization", "GlobalAveragePool"), _long_sum),
    "ReduceMean": lambda graph, node: _INTEGERS(graph, node) or _long_sum(graph, node),
    **dict.fromkeys(
        ("GroupNormalization", "MeanVarianceNormalization"),
        lambda graph, node: "a variance as a difference of squares loses all digits far from zero",
    ),
    "Cast": when(casts_to_whole, "floats that no integer holds differ"),
    **dict.fromkeys(("IsNaN", "IsInf"), lambda graph, node: "NaN and infinity are not told apart from numbers"),
    **dict.fromkeys(("ArgMax", "ArgMin"), lambda graph, node: "among infinities it gives -1"),
}
