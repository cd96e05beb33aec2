"""Composites: operators grouped so that every tensor between groups has a static shape."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

import numpy as np
import onnx

from collage_evo.graph.convert.static import reads
from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.weights import bodies
from collage_evo.multimap import multimap


def is_composite(proto: onnx.NodeProto, tensors: Mapping[str, Tensor]) -> bool:
    """Whether an operator has a body or tensors without a static shape, which most backends do not take."""
    return any(bodies(proto)) or any(not tensors[name].static for name in (*proto.input, *proto.output) if name)


def grouped(protos: Sequence[onnx.NodeProto], tensors: Mapping[str, Tensor]) -> list[list[onnx.NodeProto]]:
    """Groups of operators in topological order; a tensor without a static shape puts its maker and readers in one.

    Operators on a path between two of a group join it, since a group runs as one piece.
    """
    maker = {name: index for index, proto in enumerate(protos) for name in proto.output if name}
    edges = [
        (maker[name], reader, tensors[name].static)
        for reader, proto in enumerate(protos)
        for name in sorted({*reads(proto)})
        if name in maker
    ]
    if all(static for _, _, static in edges):
        return [[proto] for proto in protos]
    group_of = _strong_components(len(protos), edges)
    members = multimap((group, index) for index, group in enumerate(group_of))
    before: dict[int, set[int]] = {group: set() for group in group_of}
    for source, reader, _ in edges:
        before[group_of[reader]] |= {group_of[source]} - {group_of[reader]}
    return [[protos[index] for index in members[group]] for group in _in_order(before, members)]


def _strong_components(count: int, edges: Sequence[tuple[int, int, bool]]) -> list[int]:
    """The group of each operator. An edge both ways ties its ends together, and with them all on paths between."""
    # Imported where it is needed: every measuring process reads this module, and few models have such operators.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    both = [(reader, source) for source, reader, static in edges if not static]
    ends = np.array([(source, reader) for source, reader, _ in edges] + both).T
    matrix = csr_array((np.ones(ends.shape[1], np.int8), (ends[0], ends[1])), shape=(count, count))
    return [int(label) for label in connected_components(matrix, connection="strong")[1]]


def _in_order(before: Mapping[int, set[int]], members: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Groups in topological order; among those that may come next, the one whose last member comes first."""
    sorter = TopologicalSorter(before)
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    while sorter.is_active():
        for group in sorter.get_ready():
            heapq.heappush(ready, (members[group][-1], group))
        _, group = heapq.heappop(ready)
        yield group
        sorter.done(group)
