"""The true optimum of a small simulated target, by trying everything; and what all exact methods share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

from collage_evo.genome.cost_model import bordering
from collage_evo.genome.encoding import assemble, runnable_order
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.patterns.match import Placement
from tests.support.simulated_target import SimulatedEvaluator


def exhaustive_optimum(target: SimulatedEvaluator) -> Placement:
    """The fastest of all placements: every acyclic cover, every way to merge it. For about ten nodes at most."""
    return min({p.key: p for p in all_placements(target.space)}.values(), key=target.latency_ms)


def all_placements(space: SearchSpace) -> Iterator[Placement]:
    """Every placement of the space, some more than once."""
    for order in acyclic_covers(space):
        owner = {node: match for match in order for node in members(space.matches[match].nodes)}
        mergeable = [
            index
            for index, (i, j) in enumerate(space.edges)
            if owner[i] != owner[j] and space.matches[owner[i]].engine == space.matches[owner[j]].engine
        ]
        for bits in product((0, 1), repeat=len(mergeable)):
            merges = [1] * len(space.edges)
            for index, bit in zip(mergeable, bits, strict=True):
                merges[index] = bit
            yield assemble(order, merges, space)


def acyclic_covers(space: SearchSpace) -> Iterator[list[int]]:
    """Every acyclic exact cover once, as matches in an order in which they can run."""
    for cover in _covers(space, 0):
        order = runnable_order(cover, space)
        if order is not None:
            yield order


def cover_ms(space: SearchSpace, cover: Sequence[int]) -> float:
    """Additive cost of a cover by its definition (ms): a tensor crosses once to each other engine that reads it, and
    is copied once to the other memory if it is read or returned there."""
    engine = {
        node: bordering(space.matches[match].engine)
        for match in cover
        for node in members(space.matches[match].nodes)
    }
    total = sum(space.cost.match_ms[match] for match in cover)
    for flow in space.flows:
        source = engine[flow.producer] if flow.producer >= 0 else None
        for reader in {engine[node] for node in members(flow.consumers)} - {source}:
            if source is not None and space.cost.family(source) == space.cost.family(reader):
                total += space.cost.joint_ms(source, reader, flow.nbytes)
            else:
                total += space.cost.crossing_ms(source, reader, flow.nbytes)
        if flow.is_output:
            total += space.cost.crossing_ms(source, None, flow.nbytes)
        readers = {engine[node] for node in members(flow.consumers)} | ({None} if flow.is_output else set())
        made_there = source in space.cost.off_host
        if any((reader in space.cost.off_host) != made_there for reader in readers):
            copies = space.cost.copies
            copy = copies.back if made_there else copies.there
            total += copy.fixed_ms + copy.ms_per_mb * flow.nbytes / 1e6
    return total


def _covers(space: SearchSpace, covered: int) -> Iterator[tuple[int, ...]]:
    missing = space.graph.all_nodes & ~covered
    if not missing:
        yield ()
        return
    node = (missing & -missing).bit_length() - 1
    for match in space.candidates[node]:
        if not space.matches[match].nodes & covered:
            for rest in _covers(space, covered | space.matches[match].nodes):
                yield (match, *rest)


def best_backend_set(
    target: SimulatedEvaluator, solve: Callable[[frozenset[str]], Placement | None]
) -> Placement:
    """The fastest of what ``solve`` finds for each set of backends (None where a set cannot run the graph).

    With the set fixed, contention is a factor; it only grows with the set, so the best over all sets is exact.
    """
    found: list[Placement] = []
    for allowed in backend_sets(target):
        placement = solve(allowed)
        if placement is not None:
            found.append(placement)
    return min(found, key=target.latency_ms)


def backend_sets(target: SimulatedEvaluator) -> list[frozenset[str]]:
    """Every set of the target's backends, smaller ones first."""
    backends = sorted({backend for backend, _ in target.space.engines})
    return [frozenset(c) for size in range(1, len(backends) + 1) for c in combinations(backends, size)]
