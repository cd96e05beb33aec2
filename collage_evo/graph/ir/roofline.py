"""Roofline model: a lower bound on the time of an unmeasured match, from measured ones.

Peak and bandwidth are the best that any match has reached. A backend that computes with fewer operations (Winograd)
raises the peak, so the bound errs to the low side: it excludes no trial wrongly. After the roofline model (Williams,
Waterman and Patterson, 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from collage_evo.graph.ir.graph import COMPOSITE, Graph, NodeSet, members
from collage_evo.graph.ir.operators import HEAVY

VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split", "Gather"})
"""Operators that may run without touching all of their inputs and outputs, so they do not show the bandwidth."""

MACS_PER_MS, BYTES_PER_MS = 50e6, 15e6
"""Multiply-adds of convolutions and products, and what operators read and write, out of the caches too, as expected
before anything is measured: round numbers for a server core with AVX-512 in float32, chosen and not measured."""


@dataclass(frozen=True)
class Roofline:
    """Multiply-adds a ms, bytes a ms."""

    macs_per_ms: float
    bytes_per_ms: float

    @classmethod
    def seen(cls, graph: Graph, timed: Iterable[tuple[NodeSet, float]]) -> Roofline:
        """The best rates among ``timed``: node sets with their ms."""
        macs = bandwidth = 0.0
        for nodes, ms in timed:
            if 0 < ms < math.inf and any(graph.nodes[i].op_type not in VIEWS for i in members(nodes)):
                macs = max(macs, multiply_adds(graph, nodes) / ms)
                bandwidth = max(bandwidth, touched_bytes(graph, nodes) / ms)
        return cls(macs, bandwidth)

    def bound_ms(self, graph: Graph, nodes: NodeSet) -> float:
        """The bound on running ``nodes`` in any way, in ms."""
        computing = multiply_adds(graph, nodes) / self.macs_per_ms if self.macs_per_ms else 0.0
        moving = touched_bytes(graph, nodes) / self.bytes_per_ms if self.bytes_per_ms else 0.0
        return max(computing, moving)


def heavy_operators(graph: Graph, nodes: NodeSet) -> int:
    """How many of ``nodes`` are convolutions or matrix products."""
    return sum(_multiply_adds(graph, index) > 0 for index in members(nodes))


def multiply_adds(graph: Graph, nodes: NodeSet) -> int:
    """Multiply-adds of all convolutions and matrix products, computed directly."""
    return sum(_multiply_adds(graph, index) for index in members(nodes))


def touched_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes that enter and leave ``nodes``, and those of the constants that they read."""
    inputs, outputs = graph.boundary(nodes)
    return sum(graph.tensors[name].nbytes for name in (*inputs, *outputs)) + constant_bytes(graph, nodes)


def constant_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes of the constants that ``nodes`` read, each counted once."""
    constants = {name for i in members(nodes) for name in graph.nodes[i].inputs if name in graph.constants}
    return sum(graph.constants[name].nbytes for name in constants)


def _multiply_adds(graph: Graph, index: int) -> int:
    node = graph.nodes[index]
    if node.op_type not in HEAVY or node.domain == COMPOSITE:  # whose sizes are not all known
        return 0
    result, first, second = (graph.tensors[name].shape for name in (node.outputs[0], *node.inputs[:2]))
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    depth = first[0] if node.op_type == "Gemm" and node.attributes.get("transA", 0) else first[-1]
    return math.prod(result) * depth
