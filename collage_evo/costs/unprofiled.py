"""Costs of engines that no profile has of: takes kernels timed alone, gives ms by node inside the whole model.

Alone a kernel takes longer than inside the model. So all kernels of an engine are held to what the whole model takes
in it, where it ran; and what was not timed is taken to be as much slower than a profile as the rest of its engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collage_evo.costs.profiles import NodeMs
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.operators import HEAVY
from collage_evo.graph.roofline import BYTES_PER_MS, MACS_PER_MS, multiply_adds, touched_bytes

LEAST_MS = 1e-4
"""No node is expected to take less: where a profile has fused it away, another engine may not."""


def guessed_ms(graph: Graph) -> tuple[float, ...]:
    """What each node is expected to take on any engine: where one ran the whole model, only in proportion."""
    return tuple(
        LEAST_MS + multiply_adds(graph, 1 << node) / MACS_PER_MS + touched_bytes(graph, 1 << node) / BYTES_PER_MS
        for node in range(len(graph.nodes))
    )


def kernel_sets(graph: Graph, offered: Iterable[NodeSet]) -> list[NodeSet]:
    """Disjoint sets among ``offered`` with one heavy operator at most, larger ones first."""
    chosen, taken = [], 0
    for nodes in sorted(set(offered), key=lambda nodes: (-nodes.bit_count(), nodes)):
        heavy = sum(graph.nodes[node].op_type in HEAVY for node in members(nodes))
        if heavy <= 1 and not nodes & taken:
            chosen.append(nodes)
            taken |= nodes
    return chosen


def spread(
    shape: Sequence[float], kernels: Sequence[NodeSet], ms: Mapping[NodeSet, float], whole_ms: float | None
) -> NodeMs:
    """What each node of ``kernels`` takes inside the model.

    Args:
        shape: what nodes take elsewhere, which says how what is not known is shared out.
        kernels: disjoint node sets.
        ms: what some of them take alone, and some of their nodes, which says how a kernel's time is shared out.
        whole_ms: what all of them take together; None where that is not known.
    """
    timed = {nodes: ms[nodes] for nodes in kernels if nodes in ms}
    elsewhere = {nodes: sum(max(shape[node], LEAST_MS) for node in members(nodes)) for nodes in kernels}
    known = sum(elsewhere[nodes] for nodes in timed)
    slowness = sum(timed.values()) / known if known else 1.0
    times = {nodes: timed.get(nodes, slowness * ms) for nodes, ms in elsewhere.items()}
    scale = whole_ms / sum(times.values()) if whole_ms is not None and times else 1.0
    found: dict[int, float] = {}
    for nodes in kernels:
        if all(1 << node in ms for node in members(nodes)):
            weights = {node: ms[1 << node] for node in members(nodes)}
        else:
            weights = {node: max(shape[node], LEAST_MS) for node in members(nodes)}
        found |= {node: scale * times[nodes] * weight / sum(weights.values()) for node, weight in weights.items()}
    return found
