"""Genome <-> placement: decoding is total (any genome gives a valid placement), encoding is canonical.

Collage (PACT 2022) codes a graph as bits "op-level choice or the one graph backend"; here a node chooses among all
matches that cover it, of any engine, and a gene for each data edge decides whether its ends merge, where one piece
can hold both.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from collage_evo.errors import InputError
from collage_evo.genome.cover.dynamic_program import known_cover
from collage_evo.genome.genome import Genome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members, union, unions
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Placement, Region
from collage_evo.precision.transforms.edits import joined

MOST_DECODED = 2000
"""Cached placements: parents and the best child so far are decoded repeatedly while they are varied."""


def decode(genome: Genome, space: SearchSpace) -> Placement:
    """The placement ``genome`` stands for: an exact cover by connected convex regions, in runnable order.

    Nodes are decided in topological order. A choice that overlaps what is already placed, or that would close a
    cycle, is replaced by the cheapest one that fits.
    """
    decoded = space.decoded.get(genome)
    if decoded is not None:
        return decoded
    options = space.candidates
    chosen = [options[i][gene % len(options[i])] for i, gene in enumerate(genome.choices)]
    order = find_cover(space, lambda node: chain((chosen[node],), space.by_cost[node]))
    placement = assemble(order or _any_cover(space), genome.merges, space)
    if len(space.decoded) >= MOST_DECODED:
        space.decoded.clear()
    space.decoded[genome] = placement
    return placement


def encode(placement: Placement, space: SearchSpace) -> Genome:
    """The canonical genome of a placement that :func:`decode` or :func:`assemble` made.

    An edge's merge gene is 0 only where it keeps two regions of one family apart, so that a node that later changes
    its engine merges with its new neighbours.

    Raises:
        InputError: a region lacks the matches that it was made from.
    """
    choices = [-1] * len(space.graph.nodes)
    owner = [-1] * len(choices)
    for position, region in enumerate(placement.regions):
        for match in region.matches:
            for node in members(space.matches[match].nodes):
                choices[node] = space.candidates[node].index(match)
                owner[node] = position
    if -1 in choices:
        raise InputError("placement cannot be encoded: its regions do not name the matches they consist of")
    regions = placement.regions
    merges = tuple(
        int(owner[i] == owner[j] or regions[owner[i]].family != regions[owner[j]].family) for i, j in space.edges
    )
    return Genome(tuple(choices), merges)


def place(cover: Sequence[int], space: SearchSpace) -> Placement:
    """The placement of an acyclic exact cover by matches, with neighbours of one family merged where possible."""
    order = runnable_order(cover, space)
    if order is None:
        raise InputError("these matches are no acyclic exact cover of the graph")
    return assemble(order, (1,) * len(space.edges), space)


def runnable_order(cover: Sequence[int], space: SearchSpace) -> list[int] | None:
    """The matches of an exact cover in an order in which they can run; None when they wait for each other."""
    owner = {node: match for match in cover for node in members(space.matches[match].nodes)}
    return find_cover(space, lambda node: (owner[node],))


def find_cover(space: SearchSpace, wanted: Callable[[int], Iterable[int]]) -> list[int] | None:
    """An acyclic exact cover in runnable order, each node taking the first of ``wanted(node)`` that fits.

    The lowest undecided node picks a match. When that match still waits for other nodes it is *reserved* and they are
    decided first, so the order found is one in which the matches can run: no cycle can arise, and a match of one node
    always fits. None when some node has nothing left that fits.
    """
    matches, before, everything = space.matches, space.before, space.graph.all_nodes
    covered = reserved = 0
    waiting: list[int] = []
    order: list[int] = []
    while covered != everything:
        missing = before[waiting[-1]] & ~covered if waiting else everything & ~covered
        if waiting and not missing:
            ready = waiting.pop()
            covered |= matches[ready].nodes
            reserved &= ~matches[ready].nodes
            order.append(ready)
            continue
        node = (missing & -missing).bit_length() - 1
        for match in wanted(node):
            if matches[match].nodes & (covered | reserved):
                continue
            missing = before[match] & ~covered
            if missing & reserved:  # something reserved waits for this node: a cycle
                continue
            if missing:
                waiting.append(match)
                reserved |= matches[match].nodes
            else:
                covered |= matches[match].nodes
                order.append(match)
            break
        else:
            return None
    return order


def _any_cover(space: SearchSpace) -> list[int]:
    """A cover for genomes that cannot be repaired; only needed if some node has no match of its own."""
    order = runnable_order(known_cover(space), space)
    assert order is not None, "the dynamic program gave a cyclic cover"
    return order


class _Groups:
    """Matches merged into groups while the contracted graph stays acyclic.

    Matches arrive in runnable order. ``before[g]`` holds the groups upstream of g as bits of their *aliases*: a group
    is known under the bit of every group it absorbed, so that a merge rewrites no one else's bits.
    """

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.before: list[int] = []
        self.direct: list[int] = []
        self.alias: list[int] = []
        self.alive: set[int] = set()

    def find(self, position: int) -> int:
        while self.parent[position] != position:
            self.parent[position] = self.parent[self.parent[position]]
            position = self.parent[position]
        return position

    def add(self, sources: Iterable[int]) -> int:
        position = len(self.parent)
        direct = before = 0
        for group in {self.find(source) for source in sources}:
            direct |= 1 << group
            before |= self.before[group] | self.alias[group]
        self.parent.append(position)
        self.before.append(before)
        self.direct.append(direct)
        self.alias.append(1 << position)
        self.alive.add(position)
        return position

    def merge(self, upstream: int, downstream: int) -> bool:
        """Merge two groups joined by an edge; False when a path through a third would become a cycle."""
        a, b = self.find(upstream), self.find(downstream)
        if a == b:
            return True
        alias_a = self.alias[a]
        for other in members(self.direct[b] & ~alias_a):
            third = self.find(other)
            if third not in (a, b) and self.before[third] & alias_a:
                return False
        both = alias_a | self.alias[b]
        gained = (self.before[a] | self.before[b]) & ~both
        before_and_both = gained | both
        self.parent[b] = a
        self.alive.discard(b)
        self.before[a] = gained
        self.direct[a] = (self.direct[a] | self.direct[b]) & ~both
        self.alias[a] = both
        for other in self.alive:
            if self.before[other] & both:
                self.before[other] |= before_and_both
        return True


def assemble(order: Sequence[int], merges: Sequence[int], space: SearchSpace) -> Placement:
    """Merge matches (in runnable order) of one family across edges with a merge gene, and sort the regions.

    An edge is skipped when merging it would make the contracted graph cyclic; it is tried again after any other edge
    into the same match has merged.
    """
    matches = space.matches
    position_of = [0] * len(space.graph.nodes)
    groups = _Groups()
    for position, match in enumerate(order):
        for node in members(matches[match].nodes):
            position_of[node] = position
        into = space.entering[match]
        groups.add(position_of[node] for node, _ in into)
        family = matches[match].family
        pending = [
            position_of[node]
            for node, edge in into
            if merges[edge] & 1 and matches[order[position_of[node]]].family == family
        ]
        while pending:
            left = [source for source in pending if not groups.merge(source, position)]
            if len(left) == len(pending):
                break
            pending = left
    return _regions(order, groups, position_of, space)


def _regions(order: Sequence[int], groups: _Groups, position_of: Sequence[int], space: SearchSpace) -> Placement:
    # Named by their first match, so that the order of regions does not depend on the order of merges.
    first: dict[int, int] = {}
    inside = multimap((first.setdefault(groups.find(place), place), match) for place, match in enumerate(order))
    after: dict[int, set[int]] = {group: set() for group in inside}
    waits = dict.fromkeys(inside, 0)
    for position, match in enumerate(order):
        target = first[groups.find(position)]
        for node, _ in space.entering[match]:
            source = first[groups.find(position_of[node])]
            if source != target and target not in after[source]:
                after[source].add(target)
                waits[target] += 1
    ready = [group for group, count in waits.items() if not count]
    heapq.heapify(ready)
    regions = []
    while ready:
        group = heapq.heappop(ready)
        regions.append(_region(tuple(sorted(inside[group])), space))
        for target in after[group]:
            waits[target] -= 1
            if not waits[target]:
                heapq.heappush(ready, target)
    assert len(regions) == len(inside), "merging made the contracted graph cyclic"
    return Placement(tuple(regions))


def _region(merged: tuple[int, ...], space: SearchSpace) -> Region:
    """The region of matches (indices) of one family."""
    backend, variant = space.matches[merged[0]].family
    matches = [space.matches[index] for index in merged]
    parts = unions((match.variant, match.nodes) for match in matches)
    mixed = () if set(parts) == {variant} else tuple(sorted(parts.items()))
    return Region(union(parts.values()), backend, variant, joined(match.edits for match in matches), merged, mixed)
