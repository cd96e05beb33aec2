"""Operators that TVM's ONNX front end gets wrong, with the reasons.

ONNX's backend node tests (``benchmarks/node_tests.py``) or the conformance suite found each with TVM 0.27.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from collage_evo.backends.checks import by_whole_numbers, inexact_near_zero, takes_small_for_zero
from collage_evo.graph.ir import Graph, Node

Rule = Callable[[Graph, Node], str]
"""Why the node is not taken, or nothing."""
_VANISHING = ("Sigmoid", "Softplus", "Softmax")
"""Operators that return zero for the smallest numbers."""


def refusal(graph: Graph, node: Node) -> str:
    """Why TVM must not compile ``node``; empty if no fault is known."""
    if reason := takes_small_for_zero(graph, node, _VANISHING) or inexact_near_zero(graph, node, ("Tanh",)):
        return reason
    rule = _RULES.get(node.op_type)
    reason = rule(graph, node) if rule else ""
    return f"{node.op_type}: {reason}" if reason else ""


def _pool(graph: Graph, node: Node) -> str:
    if node.attributes.get("auto_pad", "NOTSET") == "SAME_LOWER":
        return "with SAME_LOWER another output size is computed"
    return _first_output_only(graph, node)


def _resize(graph: Graph, node: Node) -> str:
    if node.attributes.get("mode", "nearest") != "nearest":
        return "other than nearest was not found right"
    if not all(graph.tensors[name].static for name in (node.inputs[0], node.outputs[0])):
        return "its sizes are not known"
    if not by_whole_numbers(graph, node):
        return "other than to whole multiples comes out wrong"
    before, after = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    return "" if before[:2] == after[:2] else "channels and samples keep their number"


def _conv_transpose(graph: Graph, node: Node) -> str:
    return "output_shape is not obeyed" if "output_shape" in node.attributes else ""


def _first_output_only(graph: Graph, node: Node) -> str:
    return "only the first output is computed right" if any(node.outputs[1:]) else ""


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    "Resize": _resize,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("BatchNormalization", "LayerNormalization"), _first_output_only),
    **dict.fromkeys(("IsNaN", "IsInf"), lambda graph, node: "NaN and infinity are not told apart from numbers"),
    **dict.fromkeys(("ArgMax", "ArgMin"), lambda graph, node: "among infinities it gives -1"),
}
