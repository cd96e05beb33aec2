"""Patterns: shapes of subgraph that a backend can take as one piece. Each finds node sets in a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from operator import or_

from collage_evo.graph.ir import Graph, NodeSet, members


class Pattern(ABC):
    """A rule that proposes node sets. The caller checks that they are connected, convex and supported."""

    name: str

    @abstractmethod
    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        """Every place in ``graph`` where the pattern fits, using only nodes in ``supported``."""


@dataclass(frozen=True)
class Single(Pattern):
    """Each operator on its own; ``ops`` of None means every operator type."""

    ops: frozenset[str] | None = None
    name: str = "single"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        for index in members(supported):
            if self.ops is None or graph.nodes[index].op_type in self.ops:
                yield 1 << index


@dataclass(frozen=True)
class Epilogue(Pattern):
    """A heavy operator and the elementwise ones that alone read its result: bias, residual, activation.

    Every prefix of the chain is a match, so that the search may leave the tail to somebody else.
    """

    anchors: frozenset[str]
    followers: frozenset[str]
    max_length: int = 4
    name: str = "epilogue"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        for index in members(supported):
            if graph.nodes[index].op_type not in self.anchors:
                continue
            found = 1 << index
            last = index
            for _ in range(self.max_length - 1):
                follower = _only_consumer(graph, last)
                if follower is None or not supported >> follower & 1:
                    break
                if graph.nodes[follower].op_type not in self.followers:
                    break
                found |= 1 << follower
                last = follower
                yield found


@dataclass(frozen=True)
class Chain(Pattern):
    """Neighbouring operators of the given types, from two up to ``max_length``; diamonds are taken whole."""

    ops: frozenset[str]
    max_length: int = 8
    name: str = "chain"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        allowed = 0
        for index in members(supported):
            if graph.nodes[index].op_type in self.ops:
                allowed |= 1 << index
        for index in members(allowed):
            found = 1 << index
            while found.bit_count() < self.max_length:
                grown = _grow_forward(graph, found, allowed)
                if grown == found:
                    break
                found = grown
                if found.bit_count() <= self.max_length:
                    yield found


@dataclass(frozen=True)
class Block(Pattern):
    """Blocks with one entry and one exit: what lies between two points that every path passes.

    A residual block or an inception module is one.
    """

    max_nodes: int = 64
    name: str = "block"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        for block in blocks_of(graph):
            if not block & ~supported and 1 < block.bit_count() <= self.max_nodes:
                yield block


@dataclass(frozen=True)
class Stretch(Pattern):
    """Long stretches of neighbouring blocks: each longest one, its halves, quarters, as deep as ``halvings``.

    What a backend that compiles whole graphs does best; the longest one is the whole model if all is supported.
    """

    halvings: int = 2
    name: str = "stretch"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        blocks = blocks_of(graph)
        for taken, group in groupby(blocks, key=lambda block: not block & ~supported):
            run = list(group)
            if taken and len(run) > 1:
                yield from self._parts(run)

    def _parts(self, run: Sequence[NodeSet]) -> Iterator[NodeSet]:
        for depth in range(self.halvings + 1):
            cuts = [round(k * len(run) / 2**depth) for k in range(2**depth + 1)]
            for start, end in pairwise(cuts):
                if end - start > 1:
                    yield reduce(or_, run[start:end])


def blocks_of(graph: Graph) -> tuple[NodeSet, ...]:
    """Cuts the graph after every node that all paths pass: consecutive blocks that cover it, in order.

    A node is such a point when every other node comes before or after it and no edge leads past it.
    """
    blocks: list[NodeSet] = []
    done = 0
    for index in range(len(graph.nodes)):
        itself = 1 << index
        comparable = graph.anc[index] | graph.desc[index] | itself == graph.all_nodes
        if comparable and not _reads(graph, graph.anc[index]) & graph.desc[index]:
            block = (graph.anc[index] | itself) & ~done
            blocks.append(block)
            done |= block
    if done != graph.all_nodes:
        blocks.append(graph.all_nodes & ~done)
    return tuple(blocks)


def _reads(graph: Graph, nodes: NodeSet) -> NodeSet:
    """Everything that reads directly from a member of ``nodes``."""
    readers = 0
    for index in members(nodes):
        readers |= graph.succ[index]
    return readers


def _only_consumer(graph: Graph, index: int) -> int | None:
    """The node that alone reads all outputs of ``index``, if the model itself does not return them."""
    if any(name in graph.outputs for name in graph.nodes[index].outputs):
        return None
    users = list(members(graph.succ[index]))
    return users[0] if len(users) == 1 else None


def _grow_forward(graph: Graph, nodes: NodeSet, allowed: NodeSet) -> NodeSet:
    """``nodes`` and the first allowed successor that leaves the set convex, with what lies between."""
    for index in members(_reads(graph, nodes) & allowed & ~nodes):
        grown = nodes | 1 << index
        grown |= graph.descendants(grown) & graph.ancestors(grown)
        if not grown & ~allowed:
            return grown
    return nodes
