"""Measures what the dynamic program would choose: takes a search space, gives it with costs corrected by that."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from collage_evo.fitness.costs.borders import inner_ms
from collage_evo.fitness.costs.matches import CostMeter, cost_ms
from collage_evo.fitness.costs.model import Engine
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.cover.front import fastest_within
from collage_evo.genome.encoding import place
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir import NodeSet
from collage_evo.patterns.match import Match, Region
from collage_evo.rewrites.rewrite import Sites

CLOSE = 0.03
"""A region measured within this share of its prediction is predicted well enough."""
EFFORT = 30_000
"""States that the dynamic program examines in each round."""

LARGEST_STEP = 2.0
"""No cost changes by more than this factor in one round."""


def refine_costs(
    space: SearchSpace,
    meter: CostMeter,
    on_done: Callable[[int], None],
    budget: float = math.inf,
    rounds: int = 8,
) -> SearchSpace:
    """Measure the regions of the cheapest cover as wholes, correct the model, until the cheapest cover is known.

    The cover that looks cheapest is where the model errs on the low side. Each of its regions that was grown from
    several matches becomes a match of its own, with its measured cost, and the matches it was grown from share the
    correction; a match whose cost was estimated gets the measured one. What then looks cheapest is measured in turn,
    at most ``rounds`` times. Where matches differ in error, the cover is the cheapest within ``budget``.
    """
    for _ in range(rounds):
        placement = place(_cheapest(space, budget), space)
        asked = [r for r in placement.regions if len(r.matches) > 1 or r.matches[0] in space.cost.estimated]
        answers = meter.measure([_match(space, region) for region in asked], lambda _: math.inf, on_done)
        measured = {}
        asked = [region for region in asked if meter.key(_match(space, region)) in answers]  # late ones are missing
        for region in asked:
            standalone = cost_ms(answers[meter.key(_match(space, region))])
            if math.isfinite(standalone):
                measured[region] = inner_ms(space.graph, _match(space, region), standalone, space.cost.borders)
        known = {_kind(match) for match in space.matches}
        off = {region: ms for region, ms in measured.items() if not _close(space, region, ms)}
        new = {region: ms for region, ms in measured.items() if _kind(_match(space, region)) not in known}
        lone = {region.matches[0]: measured.get(region, math.inf) for region in asked if len(region.matches) == 1}
        if not off and not new and not lone:
            return space
        space = _known(_corrected(space, off, new), lone)
    return space


def _cheapest(space: SearchSpace, budget: float) -> tuple[int, ...]:
    if any(space.error2):
        return fastest_within(space, budget).matches
    return cheapest_covers(space, effort=EFFORT).covers[0].matches


def _known(space: SearchSpace, lone: Mapping[int, float]) -> SearchSpace:
    """The space with matches that were estimated at what they take; infinite for one that failed."""
    costs = list(space.cost.match_ms)
    for match, ms in lone.items():
        costs[match] = ms
    cost = replace(space.cost, match_ms=tuple(costs), estimated=space.cost.estimated - lone.keys())
    return replace(space, cost=cost)


def _match(space: SearchSpace, region: Region) -> Match:
    """``region`` as one match; of the engine that most of it has."""
    backend, variant = region.engine
    exact = all(space.matches[match].exact for match in region.matches)
    return Match(region.nodes, backend, variant, "grown", region.variant, region.quantised, exact, region.rewrites)


def _kind(match: Match) -> tuple[NodeSet, Engine, NodeSet, Sites]:
    return (match.nodes, match.family, match.quantised, match.rewrites)


def _predicted(space: SearchSpace, region: Region) -> float:
    return sum(space.cost.match_ms[match] for match in region.matches)


def _close(space: SearchSpace, region: Region, ms: float) -> bool:
    return abs(_predicted(space, region) - ms) <= CLOSE * ms


def _corrected(space: SearchSpace, off: dict[Region, float], new: dict[Region, float]) -> SearchSpace:
    costs = list(space.cost.match_ms)
    for region, ms in off.items():
        predicted = _predicted(space, region)
        for match in region.matches:
            if predicted:
                costs[match] *= min(max(ms / predicted, 1 / LARGEST_STEP), LARGEST_STEP)
            else:  # parts that cost nothing, as where borders were taken for all of it, have equal shares
                costs[match] = ms / len(region.matches)
    matches = (*space.matches, *(_match(space, region) for region in new))
    model = replace(space.cost, match_ms=(*costs, *new.values()))
    error2 = space.error2 and (*space.error2, *(sum(space.error2[m] for m in region.matches) for region in new))
    return replace(space, matches=matches, cost=model, error2=error2)
