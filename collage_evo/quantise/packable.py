"""Which products may read their weights in int8: those that reading takes longer than multiplying."""

from __future__ import annotations

import math

from collage_evo.graph.ir import Graph, Node, NodeSet, members, node_set
from collage_evo.quantise.rules import Quantisers, quantisable

MOST_ROWS = 8
"""With more rows to multiply, computing takes longer than reading the weights."""
LEAST_WEIGHTS = 2**18
"""Fewer are read in less time than a change of precision is worth."""


def packable(graph: Graph, nodes: NodeSet) -> NodeSet:
    """Which of ``nodes`` take longer to read their weights than to multiply by them: large ones, for few rows."""
    products = quantisable(graph, nodes, Quantisers.DYNAMIC)
    return node_set(index for index in members(products) if _bounded_by_weights(graph, graph.nodes[index]))


def _bounded_by_weights(graph: Graph, node: Node) -> bool:
    rows = math.prod(graph.tensors[node.inputs[0]].shape[:-1])
    return rows <= MOST_ROWS and graph.constants[node.inputs[1]].size >= LEAST_WEIGHTS
