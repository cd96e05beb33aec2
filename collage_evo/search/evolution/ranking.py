"""Ranking of measured placements for the final race.

Placements over the error budget are excluded, however fast, and those that are within it only by an approximate error
come last.
"""

from __future__ import annotations

from itertools import chain, zip_longest

from collage_evo.genome.encoding import decode
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.state import SearchState
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate


def ranked(state: SearchState, space: SearchSpace) -> tuple[Placement, ...]:
    """Every placement that ran and is within the state's budget as measured, the likely fastest first.

    Those that were judged only on a part of the samples come last.
    """
    features, latency = FeatureMap(space), state.latency_ms
    placements = {key: decode(state.evaluated[key].genome, space) for key in latency}
    vectors = {key: features.vector(placement) for key, placement in placements.items()}
    weights = Surrogate(features, list(vectors.values()), list(latency.values()), state.contended).mean
    within_bounds = [key for key in latency if state.keeps_bounds(key)]
    by_model = sorted(within_bounds, key=lambda key: vectors[key].corrected(weights))
    # A front has only one of those within the budget that are nearly as fast: there all of them take turns.
    by_time = sorted(within_bounds, key=latency.__getitem__) if state.bounds else state.hall
    # The shortest of many noisy times is the luckiest. The surrogate weighs each time against those of similar
    # placements, so its order and that of the times alternate.
    in_turn = dict.fromkeys(filter(None, chain.from_iterable(zip_longest(by_model, by_time))))
    return tuple(placements[key] for key in sorted(in_turn, key=lambda key: state.evaluated[key].outcome.rough))
