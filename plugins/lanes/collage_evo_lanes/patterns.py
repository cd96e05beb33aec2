"""Pattern rule for lanes: the parts of a model with enough independent work, few enough to try each of them.

Its bounds are chosen so that they find Inception's modules, NASNet's cells and BERT's layers in the built-in models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_

from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.patterns.language import Pattern
from collage_evo.patterns.regions import maximal_regions
from collage_evo_lanes.estimate import USUAL, operator_ms

WIDE = 1.1
"""Least ratio of all of a region's work to the longest path through it."""

NEIGHBOUR_SHARE = 0.25
"""Share of the work between a waist's neighbours that may neither come before nor after it, such as what a cell does
to the cell before the last."""

NOTHING = 0.002
"""Share of a region's work that is negligible, such as a mask's."""

NARROWER = 0.9
"""The longest path through what is proposed inside a block, as a share of the work, over that of the block itself."""

INSIDE_BLOCK = 2
"""Proposals inside one block."""

JOINED = (1, 2, 4)
"""Numbers of consecutive blocks to propose as one, in addition to all of them."""


def lane_patterns() -> tuple[Pattern, ...]:
    """The patterns of lanes that run branches."""
    return (Branches(),)


def branches_pay(graph: Graph, nodes: NodeSet) -> bool:
    """Whether ``nodes``, proposed by any pattern, are worth trying with their branches side by side."""
    return Width(graph, nodes).is_wide(nodes)


@dataclass(frozen=True)
class Branches(Pattern):
    """Blocks with branches, such as inception modules, cells and attention; consecutive ones joined; towers.

    A block lies between two waists: points that nearly all work comes before or after. Inside one, the nodes before
    a join are proposed too where more of them is independent than of the block.
    """

    name: str = "branches"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        width = Width(graph, supported)
        for region in maximal_regions(graph, supported):
            blocks = width.blocks(region)
            wide = [place for place, block in enumerate(blocks) if width.is_wide(block)]
            for number in (*JOINED, max(1, len(wide))):
                for first in range(0, len(wide), number):
                    places = wide[first : first + number]
                    joined = reduce(or_, blocks[places[0] : places[-1] + 1])
                    if len(places) == number and width.is_wide(joined):
                        yield joined
            if width.is_wide(region):
                yield region
            for place in wide:
                yield from width.inside(blocks[place])
                yield from width.side_by_side(blocks[place])


class Width:
    """How much of the parts of ``nodes`` is independent, by estimated times."""

    def __init__(self, graph: Graph, nodes: NodeSet) -> None:
        self.graph = graph
        self.ms = {index: operator_ms(graph, index) for index in members(nodes)}

    def work_ms(self, nodes: NodeSet) -> float:
        """Work on one core."""
        return sum(self.ms[index] for index in members(nodes))

    def path_ms(self, nodes: NodeSet) -> float:
        """Work on the longest path."""
        return self._longest_path(nodes)[1]

    def _longest_path(self, nodes: NodeSet) -> tuple[list[int], float]:
        until: dict[int, float] = {}
        back: dict[int, int] = {}
        for index in members(nodes):
            before = members(self.graph.pred[index] & nodes)
            back[index] = max(before, key=lambda other: until[other], default=-1)
            until[index] = self.ms[index] + until.get(back[index], 0.0)
        here = max(until, key=lambda index: until[index], default=-1)
        length, path = until.get(here, 0.0), []
        while here >= 0:
            path.append(here)
            here = back[here]
        return path[::-1], length

    def is_wide(self, nodes: NodeSet) -> bool:
        """Whether lanes may win there, with enough work off the longest path to be worth a handoff."""
        work, path = self.work_ms(nodes), self.path_ms(nodes)
        return work > WIDE * path and work - path > USUAL.call_ms + USUAL.handoff_ms

    def blocks(self, region: NodeSet) -> Sequence[NodeSet]:
        """``region`` cut at its waists, in order: each block is convex and, except for the last, ends in a waist."""
        ends = [self._until(waist) & region for waist in self._waists(region)]
        blocks = [later & ~earlier for earlier, later in pairwise([0, *ends])]
        rest = region & ~ends[-1] if ends else region
        return [*blocks, rest] if rest else blocks

    def inside(self, block: NodeSet) -> Iterator[NodeSet]:
        """Nodes between joins in ``block`` and the last waist before them, the most independent work first."""
        most = NARROWER * self.path_ms(block) / self.work_ms(block)
        found: dict[NodeSet, float] = {}
        for index in members(block):
            if self._joins(index, block):
                part = self.blocks(self._until(index) & block)[-1]
                work, path = self.work_ms(part), self.path_ms(part)
                if part != block and path <= most * work and self.is_wide(part):
                    found[part] = work - path
        yield from sorted(found, key=lambda part: (-found[part], part))[:INSIDE_BLOCK]

    def side_by_side(self, block: NodeSet) -> Iterator[NodeSet]:
        """``block`` without the branch that lanes would wait for, where all cores should rather run this first."""
        path, _ = self._longest_path(block)
        branch = 0
        for index in path:
            if self.graph.pred[index] & block & ~branch or (self.graph.succ[index] & block).bit_count() > 1:
                break
            branch |= 1 << index
        rest = block & ~branch
        if branch and 2 * self.path_ms(block) > self.work_ms(block) and self.is_wide(rest):
            yield rest

    def _until(self, index: int) -> NodeSet:
        return self.graph.anc[index] | 1 << index

    def _joins(self, index: int, region: NodeSet) -> bool:
        return (self.graph.pred[index] & region).bit_count() > 1

    def _waists(self, region: NodeSet) -> list[int]:
        """Points in order, each after the ones before, with little work parallel to them."""
        nothing = NOTHING * self.work_ms(region)
        side_by_side: dict[int, float] = {}
        for index in members(region):
            others = region & ~self._until(index) & ~self.graph.desc[index]
            if 4 * others.bit_count() < region.bit_count():
                ms = self.work_ms(others)
                if ms <= nothing or self._joins(index, region):
                    side_by_side[index] = ms
        waists = 0
        for index in sorted(side_by_side, key=lambda index: (side_by_side[index], index)):
            earlier, later = self.graph.anc[index] & waists, self.graph.desc[index] & waists
            if waists == earlier | later:
                around = self._between(earlier, later, region)
                if side_by_side[index] <= nothing or side_by_side[index] <= NEIGHBOUR_SHARE * self.work_ms(around):
                    waists |= 1 << index
        return list(members(waists))

    def _between(self, earlier: NodeSet, later: NodeSet, region: NodeSet) -> NodeSet:
        """Nodes of ``region`` before the first of ``later`` and not before the last of ``earlier``."""
        if later:
            region &= self._until((later & -later).bit_length() - 1)
        return region & ~self._until(earlier.bit_length() - 1) if earlier else region
