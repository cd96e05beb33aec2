"""Operators that TVM's ONNX front end gets wrong, with the reasons.

ONNX's backend node tests (``benchmarks/node_tests.py``) or the conformance suite found each with TVM 0.27.
"""

from __future__ import annotations

from collections.abc import Mapping

from collage_evo.backends.checks import (
    Rule,
    by_whole_numbers,
    inexact_near_zero,
    refused_by,
    takes_small_for_zero,
    when,
)
from collage_evo.graph.ir.graph import Graph, Node

_VANISHING = ("Sigmoid", "Softplus", "Softmax")
"""Operators that return zero for the smallest numbers."""


def refusal(graph: Graph, node: Node) -> str:
    """Why TVM must not compile ``node``; empty if no fault is known."""
    reason = takes_small_for_zero(graph, node, _VANISHING) or inexact_near_zero(graph, node, ("Tanh",))
    return reason or refused_by(_RULES, graph, node)


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


_FIRST_OUTPUT_ONLY = when(lambda graph, node: any(node.outputs[1:]), "only the first output is computed right")
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    "Resize": _resize,
    "ConvTranspose": when(lambda graph, node: "output_shape" in node.attributes, "output_shape is not obeyed"),
    **dict.fromkeys(("BatchNormalization", "LayerNormalization"), _FIRST_OUTPUT_ONLY),
    **dict.fromkeys(("IsNaN", "IsInf"), lambda graph, node: "NaN and infinity are not told apart from numbers"),
    **dict.fromkeys(("ArgMax", "ArgMin"), lambda graph, node: "among infinities it gives -1"),
}
