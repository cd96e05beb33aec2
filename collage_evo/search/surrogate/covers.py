"""Dynamic program on the surrogate: the cheapest covers under given weights of the features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Border, Copies
from collage_evo.genome.cover.dynamic_program import Cover, cheapest_covers
from collage_evo.genome.genome import Genome
from collage_evo.graph.ir.graph import members
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.regression import LEAST_CORRECTED


def surrogate_covers(
    features: FeatureMap, weights: np.ndarray, incumbent: Genome, price: np.ndarray | None = None
) -> tuple[Cover, ...]:
    """The cheapest cover if ``weights`` are right; none if no cover was found within the effort.

    ``price`` is an additional cost of each match (ms): the price of its error.

    The cost of an edge depends on both of its ends, which the program does not see: each node is charged for its
    edges as if its neighbours stayed on the engines they have in ``incumbent``.
    """
    space = features.space
    start = features.starts
    borders = {
        engine: _scaled(space.cost.borders[engine], weights[start["border"] + position])
        for position, engine in enumerate(space.engines)
    }
    copies = space.cost.copies
    if space.cost.off_host:
        going, coming = (weights[features.copy_column(there)] for there in (True, False))
        copies = Copies(_scaled(copies.there, going), _scaled(copies.back, coming))
    nodes = features.node_weights(weights)
    edges = _edge_charges(features, weights, incumbent)
    costs = list(space.cost.match_ms)
    for match in space.usable:
        engine = space.engine_of[match]
        factor = 1 + weights[start["engine"] + engine]
        share = space.ms_per_node(match)
        covered = members(space.matches[match].nodes)
        extra = sum(share * nodes[node, engine] + edges[node, engine] for node in covered)
        costs[match] = max(LEAST_CORRECTED * costs[match], costs[match] * factor + extra)
        if price is not None:
            costs[match] += float(price[match])
    corrected = space.costing(replace(space.cost, borders=borders, copies=copies))
    try:
        return cheapest_covers(corrected, 1, space.policy.cover_states, tuple(costs)).covers
    except InputError:
        return ()


def _scaled(border: Border, weight: float) -> Border:
    return border.scaled(max(LEAST_CORRECTED, 1 + weight))


def _edge_charges(features: FeatureMap, weights: np.ndarray, incumbent: Genome) -> np.ndarray:
    """For each node and engine the cost of its edges if its neighbours stay (ms)."""
    space = features.space
    engines = len(space.engines)
    now = [space.engine_of[space.candidates[node][gene]] for node, gene in enumerate(incumbent.choices)]
    charges = np.zeros((len(now), engines))
    by_edge = features.edge_weights(weights)
    for edge, (i, j) in enumerate(space.edges):
        target_ms = features.cheapest_ms[j]
        for engine in range(engines):
            # Equal neighbours are assumed to be merged.
            before = engines if now[i] == engine else now[i]
            charges[j, engine] += target_ms * by_edge[edge, before, engine]
            after = engines if now[j] == engine else engine
            charges[i, engine] += target_ms * by_edge[edge, after, now[j]]
    return charges
