"""How cold caches must be for a match to cost what it costs inside the model."""

from __future__ import annotations

from collage_evo.graph.ir import Graph, NodeSet, members

MOST_FLUSH_BYTES = 64 * 2**20
"""More than the last-level cache of most CPUs: reading as much pushes everything else out."""


def flush_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes to read between two runs of ``nodes``: as many as the rest of the model touches between them.

    So weights are as cold as they are inside the model: out of the last-level cache for a small part of a
    large model, still in it for a small model. Nothing lies between two runs of the whole model.
    """
    return min(touched_bytes(graph, graph.all_nodes & ~nodes), MOST_FLUSH_BYTES)


def touched_bytes(graph: Graph, nodes: NodeSet) -> int:
    """Bytes of the constants that ``nodes`` read and of the tensors that they make."""
    constants = {name for i in members(nodes) for name in graph.nodes[i].inputs if name in graph.constants}
    made = {name for i in members(nodes) for name in graph.nodes[i].outputs if name}
    return sum(graph.constants[name].nbytes for name in constants) + sum(graph.tensors[name].nbytes for name in made)
