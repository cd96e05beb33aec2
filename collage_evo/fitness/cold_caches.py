"""Cache flushing between runs, so that a match costs in isolation what it costs inside the model."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.graph.ir.graph import Graph, GraphCache, NodeSet, Tensor, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.hardware.cores import own_cores
from collage_evo.multimap import multimap
from collage_evo.precision.transforms.edits import Numerics

MOST_FLUSH_BYTES = 64 * 2**20
"""Larger than the last-level cache of most CPUs: reading as many bytes evicts everything else."""
LINE_BYTES = 64
"""A cache line: reading one number of it loads the whole line."""


@dataclass(frozen=True)
class Widths:
    """Bytes per number of a float32 tensor in the arithmetic that computes it: a heavy operator's weight, and any
    other."""

    weights: int = 4
    others: int = 4


def widths_of(backend: str, variant: str, numerics: Numerics) -> Widths:
    """The widths of pieces that are compiled as ``variant``, with ``numerics`` written into them."""
    kinds = {arithmetic_of(backend, variant), *(arithmetic for arithmetic, _ in numerics)}
    return Widths(min(kind.weight_bytes for kind in kinds), min(kind.number_bytes for kind in kinds))


def flush_bytes(graph: Graph, nodes: NodeSet, widths: Widths, variant: Variant = DEFAULT) -> int:
    """Bytes to touch between two runs of ``nodes``: as many as the rest of the model touches, within what clears
    the caches that ``variant`` uses.

    So weights are as cold as they are inside the model: out of the last-level cache for a small part of a large
    model, still in it for a small model. No bytes are touched between two runs of the whole model. The rest is
    assumed to run in the same arithmetic.
    """
    least, most = (0, MOST_FLUSH_BYTES) if variant.on_host else variant.served_by.flush_bytes
    return max(least, min(touched_bytes(graph, graph.all_nodes & ~nodes, widths), most))


def touched_bytes(graph: Graph, nodes: NodeSet, widths: Widths) -> int:
    """Bytes of the constants that ``nodes`` read, and of the most of their tensors that are needed at once.

    Other tensors reuse the memory of these. The run time grows with the number of other nodes: the total is cached.
    """
    return _touched(graph, widths).without(graph.all_nodes & ~nodes)


class _Touched:
    """Bytes that all nodes of ``graph`` touch, as tables from which some nodes can be subtracted."""

    def __init__(self, graph: Graph, widths: Widths) -> None:
        self._graph, self._widths = graph, widths
        self._users = multimap(
            (name, node.index)
            for node in graph.nodes
            for name in dict.fromkeys(filter(None, (*node.inputs, *node.outputs)))  # an omitted one has no name
        )
        """Who reads or makes each tensor, ascending."""
        heavy = (node for node in graph.nodes if node.op_type in HEAVY)
        self._as_weights = multimap((name, node.index) for node in heavy for name in node.inputs[1:2])
        """Who of these reads it as the weights of a heavy operator."""
        self._changes = np.zeros(len(graph.nodes) + 1, np.int64)
        """By how many bytes what is needed at each node differs from what the one before it needs."""
        self._constants = 0
        for name, users in self._users.items():
            if name in graph.constants:
                self._constants += self._read(name, users, frozenset())
            else:
                self._need(self._changes, name, users)

    def without(self, others: NodeSet) -> int:
        """Bytes touched by all nodes except ``others``."""
        gone, changes, constants = frozenset(members(others)), self._changes.copy(), self._constants
        nodes = map(self._graph.nodes.__getitem__, gone)
        for name in {name for node in nodes for name in (*node.inputs, *node.outputs) if name}:
            users = self._users[name]
            left = [index for index in users if index not in gone]
            if name in self._graph.constants:
                constants += self._read(name, left, gone) - self._read(name, users, frozenset())
            else:
                self._need(changes, name, users, -1)
                self._need(changes, name, left)
        return int(changes.cumsum().max(initial=0)) + constants

    def _read(self, name: str, users: Sequence[int], gone: Collection[int]) -> int:
        heavy = any(index not in gone for index in self._as_weights.get(name, ()))
        width = self._widths.weights if heavy else self._widths.others
        return _held(self._graph.tensors[name], width) if users else 0

    def _need(self, changes: np.ndarray, name: str, users: Sequence[int], sign: int = 1) -> None:
        if users:
            size = sign * _held(self._graph.tensors[name], self._widths.others)
            changes[users[0]] += size
            changes[users[-1] + 1] -= size


_touched = GraphCache(_Touched)


def _held(tensor: Tensor, width: int) -> int:
    return tensor.nbytes * width // 4 if tensor.dtype == "float32" else tensor.nbytes


class Flush:
    """Reads a given number of bytes, on as many threads as the target has, each pinned to one core.

    All cores read: so each core's private caches are cold, and none is idle when the region starts, as none is inside
    the model. Waking an idle core takes tens of microseconds.
    """

    def __init__(self, threads: int) -> None:
        self._ballast = np.ones((threads, MOST_FLUSH_BYTES // LINE_BYTES // threads, LINE_BYTES // 8), np.int64)
        self._cores = own_cores(threads)
        self._others = [_thread_on(self._cores[number : number + 1]) for number in range(1, threads)]

    def read(self, nbytes: int) -> int:
        """Read ``nbytes`` (at most ``MOST_FLUSH_BYTES``), divided evenly among the threads; returns how many were
        read."""
        parts = self._ballast[:, : nbytes // LINE_BYTES // len(self._ballast), 0]
        others = [thread.submit(part.sum) for thread, part in zip(self._others, parts[1:], strict=True)]
        if self._cores:
            # The caller is on its core now and need not move when the region starts; it is unpinned again, as
            # libraries expect.
            os.sched_setaffinity(0, self._cores[:1])
            os.sched_setaffinity(0, self._cores)
        total = parts[0].sum() + sum(other.result() for other in others)
        return int(total) * LINE_BYTES  # the ballast is ones


def _thread_on(cores: tuple[int, ...]) -> ThreadPoolExecutor:
    """One thread pinned to ``cores``; unpinned if there are none."""
    if not cores:
        return ThreadPoolExecutor(1)
    return ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, cores))
