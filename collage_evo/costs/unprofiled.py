"""Costs of engines without a profile, from kernels timed standalone: ms by node inside the whole model.

All kernels of an engine are scaled to the whole model's latency in it, if it ran; and what was not timed is assumed
to be as much slower than a profile as the rest of its engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collage_evo.costs.profiles import NodeMs
from collage_evo.graph.ir.graph import Graph, NodeSet, disjoint, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.graph.ir.roofline import BYTES_PER_MS, MACS_PER_MS, multiply_adds, touched_bytes

LEAST_MS = 1e-4
"""Minimum time of a node: a profile may have fused it away where another engine does not."""


def guessed_ms(graph: Graph) -> tuple[float, ...]:
    """Expected time of each node on any engine: where one ran the whole model, only in proportion."""
    return tuple(
        LEAST_MS + multiply_adds(graph, 1 << node) / MACS_PER_MS + touched_bytes(graph, 1 << node) / BYTES_PER_MS
        for node in range(len(graph.nodes))
    )


def kernel_sets(graph: Graph, offered: Iterable[NodeSet]) -> list[NodeSet]:
    """Disjoint sets among ``offered`` with at most one heavy operator, larger ones first."""
    by_size = sorted(set(offered), key=lambda nodes: (-nodes.bit_count(), nodes))
    light = (nodes for nodes in by_size if sum(graph.nodes[node].op_type in HEAVY for node in members(nodes)) <= 1)
    return disjoint(light, lambda nodes: nodes)


def spread(
    shape: Sequence[float], kernels: Sequence[NodeSet], ms: Mapping[NodeSet, float], whole_ms: float | None
) -> NodeMs:
    """Time of each node of ``kernels`` inside the model.

    Args:
        shape: times of nodes elsewhere, by which unknown times are apportioned.
        kernels: disjoint node sets.
        ms: standalone times of some of them, and of some of their nodes, by which a kernel's time is apportioned.
        whole_ms: time of all of them together; None where that is not known.
    """
    timed = {nodes: ms[nodes] for nodes in kernels if nodes in ms}
    elsewhere = {nodes: sum(max(shape[node], LEAST_MS) for node in members(nodes)) for nodes in kernels}
    known_elsewhere = sum(elsewhere[nodes] for nodes in timed)
    slowness = sum(timed.values()) / known_elsewhere if known_elsewhere else 1.0
    times = {nodes: timed.get(nodes, slowness * ms) for nodes, ms in elsewhere.items()}
    # Standalone a kernel takes longer than inside the model.
    scale = whole_ms / sum(times.values()) if whole_ms is not None and times else 1.0
    node_ms: dict[int, float] = {}
    for nodes in kernels:
        measured = all(1 << node in ms for node in members(nodes))
        weights = {node: ms[1 << node] if measured else max(shape[node], LEAST_MS) for node in members(nodes)}
        node_ms |= {node: scale * times[nodes] * weight / sum(weights.values()) for node, weight in weights.items()}
    return node_ms
