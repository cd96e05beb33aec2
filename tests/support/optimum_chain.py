"""The true optimum of a simulated target on a chain: takes a target, gives its fastest placement."""

from __future__ import annotations

import math

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import members, node_set
from collage_evo.patterns.match import Placement, Region
from tests.support.optimum import best_backend_set
from tests.support.simulated_target import SimulatedEvaluator


def chain_optimum(target: SimulatedEvaluator) -> Placement:
    """The fastest placement of a chain, by dynamic programming over where regions begin and end.

    Exact for every term but ``failures``: what a region costs depends on its own nodes and engine, and on the
    engine before it; contention is taken care of by solving for every set of backends.

    Raises:
        InputError: the graph is no chain.
    """
    regions = chain_regions(target)
    return best_backend_set(target, lambda allowed: _chain_path(target, regions, allowed))


def chain_regions(target: SimulatedEvaluator) -> dict[tuple[int, int, int], tuple[float, Region]]:
    """For nodes i to j-1 on each engine the cheapest region with its cost (ms): inner, borders and layout inside.

    Raises:
        InputError: the graph is no chain.
    """
    space = target.space
    if any(space.graph.pred[node] != 1 << (node - 1) for node in range(1, len(space.graph.nodes))):
        raise InputError("the graph is no chain; use another exact method")
    count = len(space.graph.nodes)
    ending: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for match in space.usable:
        nodes = space.matches[match].nodes
        last, first = nodes.bit_length(), (nodes & -nodes).bit_length() - 1
        ending.setdefault((last, space.engines.index(space.matches[match].engine)), []).append((first, match))
    entering = {min(members(f.consumers)): f.nbytes for f in space.flows if f.consumers}
    leaving = {f.producer + 1: f.nbytes for f in space.flows if f.producer >= 0}
    found: dict[tuple[int, int, int], tuple[float, Region]] = {}
    for index, engine in enumerate(space.engines):
        for i in range(count):
            tiles: dict[int, tuple[float, tuple[int, ...]]] = {i: (0.0, ())}
            layout = 0.0
            for j in range(i + 1, count + 1):
                ways = [
                    (tiles[start][0] + space.cost.match_ms[match], (*tiles[start][1], match))
                    for start, match in ending.get((j, index), ())
                    if start in tiles
                ]
                if j > i + 1:
                    layout += target.layout_ms(j - 2, engine, j - 1, engine) if target.effects.layout else 0.0
                if not ways:
                    continue
                inner, matches = tiles[j] = min(ways)
                nodes = node_set(range(i, j))
                cost = inner + target.region_ms(nodes, inner) + layout
                cost += space.cost.side_ms(engine, entering[i]) + space.cost.side_ms(engine, leaving[j])
                found[i, j, index] = (cost, Region(nodes, *engine, matches=tuple(sorted(matches))))
    return found


def _chain_path(
    target: SimulatedEvaluator, regions: dict[tuple[int, int, int], tuple[float, Region]], allowed: frozenset[str]
) -> Placement | None:
    engines = target.space.engines
    best: dict[tuple[int, int], tuple[float, tuple[Region, ...]]] = {(0, -1): (0.0, ())}
    for (i, j, index), (cost, region) in sorted(regions.items(), key=lambda item: item[0][1]):
        if engines[index][0] not in allowed:
            continue
        for before in range(-1, len(engines)):
            if (i, before) not in best:
                continue
            total, path = best[i, before]
            total += cost
            if before >= 0 and target.effects.layout:
                total += target.layout_ms(i - 1, engines[before], i, engines[index])
            if total < best.get((j, index), (math.inf, ()))[0]:
                best[j, index] = (total, (*path, region))
    count = len(target.space.graph.nodes)
    ends = [best[count, index] for index in range(len(engines)) if (count, index) in best]
    return Placement(min(ends, key=lambda end: end[0])[1]) if ends else None
