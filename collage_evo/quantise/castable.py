"""What may be written in bfloat16: takes a graph and nodes, gives those whose own types may say so."""

from __future__ import annotations

import numpy as np

from collage_evo.graph.ir import Graph, Node, NodeSet, members, node_set
from collage_evo.graph.operators import ELEMENTWISE, HEAVY
from collage_evo.quantise.rules import PASSING, opset

_MIN_OPSET = 13
"""From here on Cast has bfloat16."""
_OTHERS = frozenset(
    {
        *("AveragePool", "GlobalAveragePool", "ReduceMean", "Softmax", "LayerNormalization"),
        *("Concat", "Split", "Slice", "Resize"),
    }
)
_NO_FLOATS_OUT = frozenset({"Cast", "Not", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or"})
_CASTABLE = (HEAVY | ELEMENTWISE | PASSING | _OTHERS) - _NO_FLOATS_OUT - {"ConvTranspose"}
"""What OpenVINO computes in bfloat16 where its types say so, no slower than by a hint for the whole model.

Transposed convolutions are slower so than in float32 (2026.4), and its hint leaves them in that.
"""
_LARGEST = 3.3895313892515355e38
"""Of bfloat16. What is larger, as in masks, would become an infinity."""


def castable(graph: Graph, nodes: NodeSet) -> NodeSet:
    """Which of ``nodes`` can be written in bfloat16."""
    if opset(graph) < _MIN_OPSET:
        return 0
    return node_set(index for index in members(nodes) if _fits(graph, graph.nodes[index]))


def _fits(graph: Graph, node: Node) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type not in _CASTABLE:
        return False
    outputs = [graph.tensors[name] for name in node.outputs if name]
    read = [name for name in node.inputs if name and graph.tensors[name].dtype == "float32"]
    if not read or not all(tensor.dtype == "float32" and tensor.static for tensor in outputs):
        return False
    return all(_bounded(graph.constants[name]) for name in read if name in graph.constants)


def _bounded(array: np.ndarray) -> bool:
    return bool(np.all(np.abs(array) <= _LARGEST))
