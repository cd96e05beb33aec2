"""What the hardware allows: takes measured matches, gives a lower bound on any other one's time.

Peak and bandwidth are the best that any match was seen to reach. A backend that computes with fewer operations
(Winograd) raises the peak, so the bound errs to the low side: no trial is withheld for it. After the roofline model
(Williams, Waterman and Patterson, 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.operators import multiply_adds

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split", "Gather"})
"""Operators that may run without touching all that enters and leaves them: they say nothing of the bandwidth."""


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
            if 0 < ms < math.inf and any(graph.nodes[i].op_type not in _VIEWS for i in members(nodes)):
                macs = max(macs, multiply_adds(graph, nodes) / ms)
                bandwidth = max(bandwidth, touched_bytes(graph, nodes) / ms)
        return cls(macs, bandwidth)

    def bound_ms(self, graph: Graph, nodes: NodeSet) -> float:
        """No way of running ``nodes`` is expected to take less."""
        computing = multiply_adds(graph, nodes) / self.macs_per_ms if self.macs_per_ms else 0.0
        moving = touched_bytes(graph, nodes) / self.bytes_per_ms if self.bytes_per_ms else 0.0
        return max(computing, moving)


def heavy_operators(graph: Graph, nodes: NodeSet) -> int:
    """How many of ``nodes`` are convolutions or matrix products."""
    return sum(multiply_adds(graph, 1 << index) > 0 for index in members(nodes))


def touched_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes that enter and leave ``nodes``, and those of the constants that they read."""
    inputs, outputs = graph.boundary(nodes)
    constants = {name for i in members(nodes) for name in graph.nodes[i].inputs if name in graph.constants}
    moved = sum(graph.tensors[name].nbytes for name in (*inputs, *outputs))
    return moved + sum(graph.constants[name].nbytes for name in constants)
