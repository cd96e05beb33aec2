"""How cold caches must be for a match to cost what it costs inside the model."""

from __future__ import annotations

from collage_evo.graph.ir import Graph

MOST_FLUSH_BYTES = 64 * 2**20
"""More than the last-level cache of most CPUs: reading as much pushes everything else out."""


def flush_bytes(graph: Graph) -> int:
    """Bytes to read between runs of a match: as many as one run of the whole model touches.

    So a match's weights are as cold as they are inside the model: out of the last-level cache for a large
    model, still in it for a small one.
    """
    weights = sum(array.nbytes for array in graph.constants.values())
    activations = sum(graph.tensors[name].nbytes for node in graph.nodes for name in node.outputs if name)
    return min(weights + activations, MOST_FLUSH_BYTES)
