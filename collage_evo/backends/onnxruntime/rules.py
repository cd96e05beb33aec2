"""Operators that ONNX Runtime's CPU provider computes wrongly, with the reasons.

ONNX's backend node tests (``benchmarks/node_tests.py``) found each with ONNX Runtime 1.31: accepted, but with other
results than ONNX specifies, or an error at run time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collage_evo.backends.checks import Rule, constant, present, refused_by, when
from collage_evo.graph.ir.graph import Graph, Node

_LENGTHS = 6
"""Attention's input of valid lengths."""
_SCORES = 3
"""Attention's output of scores."""


def refusal(graph: Graph, node: Node) -> str:
    """Why the provider must not run ``node``; empty if no fault is known."""
    return refused_by(_RULES, graph, node)


def _attention(graph: Graph, node: Node) -> str:
    scores = len(node.outputs) > _SCORES and node.outputs[_SCORES]
    if scores and node.attributes.get("is_causal", 0) and present(node, 4):
        return "the scores of a causal one over a past come out wrong"
    return "a mask with valid lengths fails" if present(node, 3) and present(node, _LENGTHS) else ""


def _resize(graph: Graph, node: Node) -> str:
    """With aligned corners, ONNX computes with the scaled size, the provider with that size rounded down."""
    if node.attributes.get("coordinate_transformation_mode") != "align_corners" or not present(node, 2):
        return ""
    scales = constant(graph, node, 2)
    if scales is None:
        return "align_corners by computed scales may come out wrong"
    if "axes" in node.attributes:
        return "align_corners by scales of some axes may come out wrong"
    sizes = np.array(graph.tensors[node.inputs[0]].shape) * scales
    return "align_corners by scales comes out wrong for sizes that are not whole" if (sizes % 1).any() else ""


_RULES: Mapping[str, Rule] = {
    "Attention": _attention,
    "MaxUnpool": when(lambda graph, node: present(node, 2), "output_shape comes out wrong"),
    "Resize": _resize,
}
