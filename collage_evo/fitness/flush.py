"""How cold caches must be for a match to cost what it costs inside the model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

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


class Flush:
    """Reads as many bytes as asked for, on as many threads as the target has.

    All cores read: so each one's own caches are cold, and none is idle when the region starts, as none is
    inside the model. Waking an idle core takes tens of microseconds.
    """

    def __init__(self, threads: int) -> None:
        self._ballast = np.ones((threads, MOST_FLUSH_BYTES // 8 // threads))
        self._others = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def read(self, nbytes: int) -> int:
        """Read ``nbytes`` (``MOST_FLUSH_BYTES`` at most), shared out evenly; how many were read."""
        parts = self._ballast[:, : nbytes // 8 // len(self._ballast)]
        others = [self._others.submit(part.sum) for part in parts[1:]] if self._others else []
        total = parts[0].sum() + sum(other.result() for other in others)
        return int(total) * 8  # the ballast is ones
