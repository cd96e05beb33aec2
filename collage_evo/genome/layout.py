"""Layout: the cost-independent part of the dynamic program's view: the order of nodes, and matches as sets in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.genome.cost_model import Flow
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.patterns.match import Match

BYTE = 8


@dataclass(frozen=True)
class Laid:
    """One match in renumbered form: its nodes, all that must have run before, the (tensor, reader) pairs that it
    reads from outside and makes for outside, and the tensors of these, each once."""

    nodes: NodeSet
    before: NodeSet
    reads: tuple[tuple[int, int], ...]
    makes: tuple[tuple[int, int], ...]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]


class Layout:
    """Nodes by their rank in the program's order, and tensors with readers by their place among the flows.

    ``reads`` and ``makes`` contain for each rank the tensors that it reads and makes; ``readers`` those of each
    tensor. ``before``: for each match all nodes that must have run before it.
    """

    def __init__(
        self, graph: Graph, flows: Sequence[Flow], matches: Sequence[Match], before: Sequence[NodeSet]
    ) -> None:
        self._matches, self._before = matches, before
        self.order = narrow_order(graph)
        self.rank = [0] * len(graph.nodes)
        for rank, node in enumerate(self.order):
            self.rank[node] = rank
        self._bytes: list[dict[int, NodeSet]] = [{} for _ in range(-(-len(graph.nodes) // BYTE))]
        self._laid: dict[int, Laid] = {}
        self.reads: list[list[int]] = [[] for _ in graph.nodes]
        self.makes: list[list[int]] = [[] for _ in graph.nodes]
        self.flows = [flow for flow in flows if flow.consumers]
        self.readers = [self.renumber(flow.consumers) for flow in self.flows]
        for index, flow in enumerate(self.flows):
            if flow.producer >= 0:
                self.makes[self.rank[flow.producer]].append(index)
            for node in members(flow.consumers):
                self.reads[self.rank[node]].append(index)

    def renumber(self, nodes: NodeSet) -> NodeSet:
        """A set of graph nodes in the program's order."""
        result = 0
        for place, byte in enumerate(nodes.to_bytes(len(self._bytes), "little")):
            if byte:
                by_byte = self._bytes[place]
                if byte not in by_byte:
                    by_byte[byte] = sum(1 << self.rank[place * BYTE + bit] for bit in members(byte))
                result |= by_byte[byte]
        return result

    def laid(self, match: int) -> Laid:
        """A match, computed once."""
        if match not in self._laid:
            nodes = self.renumber(self._matches[match].nodes)
            ranks = list(members(nodes))
            made_inside = {tensor for rank in ranks for tensor in self.makes[rank]}
            reads = tuple((t, rank) for rank in ranks for t in self.reads[rank] if t not in made_inside)
            makes = tuple((t, r) for t in sorted(made_inside) for r in members(self.readers[t] & ~nodes))
            entering, leaving = (tuple(sorted({t for t, _ in pairs})) for pairs in (reads, makes))
            before = self.renumber(self._before[match])
            self._laid[match] = Laid(nodes, before, reads, makes, entering, leaving)
        return self._laid[match]


def narrow_order(graph: Graph) -> list[int]:
    """A topological order in which few tensors are live at a time (greedy: free most, then newest first)."""
    left = {name: len(graph.consumers.get(name, ())) for node in graph.nodes for name in node.outputs}
    waits = [mask.bit_count() for mask in graph.pred]
    ready = {index: 0 for index, count in enumerate(waits) if not count}
    order: list[int] = []
    clock = 0

    def growth(index: int) -> int:
        node = graph.nodes[index]
        opened = sum(1 for name in node.outputs if graph.consumers.get(name))
        closed = sum(1 for name in set(node.inputs) if left.get(name) == 1)
        return opened - closed

    while ready:
        best = min(ready, key=lambda index: (growth(index), -ready[index], index))
        del ready[best]
        order.append(best)
        clock += 1
        for name in set(graph.nodes[best].inputs):
            if name in left:
                left[name] -= 1
        for after in members(graph.succ[best]):
            waits[after] -= 1
            if not waits[after]:
                ready[after] = clock
    return order
