"""Region pattern rule: the largest regions that a backend can take, and the blocks in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from collage_evo.graph.ir.graph import Graph, NodeSet, members, union
from collage_evo.patterns.language import Pattern


@dataclass(frozen=True)
class Regions(Pattern):
    """Regions for a compiler of whole graphs: maximal supported ones, their halves, quarters ... and blocks.

    A block lies between two points that every path passes, such as a residual block or an inception module. Halves
    and quarters, ``halvings`` deep, consist of blocks.
    """

    halvings: int = 2
    name: str = "region"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        for region in maximal_regions(graph, supported):
            blocks = blocks_of(graph, region)
            for depth in range(self.halvings + 1):
                yield from _parts(blocks, 2**depth)
            yield from _parts(blocks, len(blocks))


def _parts(blocks: Sequence[NodeSet], number: int) -> Iterator[NodeSet]:
    """``blocks`` in ``number`` stretches of about equal length; single nodes are dropped."""
    cuts = [round(k * len(blocks) / number) for k in range(number + 1)]
    for start, end in pairwise(cuts):
        part = union(blocks[start:end])
        if part.bit_count() > 1:
            yield part


def maximal_regions(graph: Graph, supported: NodeSet) -> tuple[NodeSet, ...]:
    """Connected convex sets of supported nodes to which no neighbour can be added; every supported node is in one.

    Each grows from the first node that is in none yet. Two may overlap where a node fits both.
    """
    regions: list[NodeSet] = []
    rest = supported
    while rest:
        region = _grow(graph, rest & -rest, supported)
        regions.append(region)
        rest &= ~region
    return tuple(regions)


def _grow(graph: Graph, region: NodeSet, supported: NodeSet) -> NodeSet:
    """Add neighbours, with all nodes between them and the region, while all of them are supported.

    A neighbour that was refused once stays refused, because the nodes between only grow with the region.
    """
    before = after = untried = refused = 0
    new = region
    while True:
        for index in members(new):
            before |= graph.anc[index]
            after |= graph.desc[index]
            untried |= graph.pred[index] | graph.succ[index]
        region |= new
        untried &= supported & ~region & ~refused
        if not untried:
            return region
        index = (untried & -untried).bit_length() - 1
        hull = 1 << index | (before | graph.anc[index]) & (after | graph.desc[index])
        new = 0 if hull & ~supported else hull & ~region
        refused |= 0 if new else 1 << index


def blocks_of(graph: Graph, region: NodeSet) -> tuple[NodeSet, ...]:
    """Cut a convex ``region`` after every node that all its paths pass: consecutive blocks that cover it, in order.

    A node is such a point when every other one comes before or after it and no edge leads past it.
    """
    blocks: list[NodeSet] = []
    block = awaited = 0
    for index in members(region):
        itself = 1 << index
        block |= itself
        awaited &= ~itself
        comparable = not region & ~(graph.anc[index] | graph.desc[index] | itself)
        if comparable and not awaited:
            blocks.append(block)
            block = 0
        awaited |= graph.succ[index] & region
    return (*blocks, block) if block else tuple(blocks)
