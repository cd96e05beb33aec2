"""The order for the final: luck in one time counts less, and nothing that ran is left out."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from collage_evo.genome.encoding import decode
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import make_seeds
from collage_evo.search.evolution.state import SearchState
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_space, resnet_like

TERMS = NonAdditive(layout=0.4, region=0.03, contention=0.05, failures=0.05)


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return make_space(resnet_like(2), random.Random(5), engines=4)


def searched(space: SearchSpace, seed: int, noise: float) -> SearchState:
    target = SimulatedEvaluator(space, TERMS, noise=noise, seed=seed)
    settings = GaSettings(seed=seed, patience=0, screen_factor=4, climb=4)
    return Evolution(space, target, settings, Budget(60), lambda: 0.0, tuple(make_seeds(space))).run()


def test_all_that_ran_are_ranked_and_the_first_is_nearer_to_the_fastest_than_the_shortest_time_is(
    space: SearchSpace,
) -> None:
    by_order, by_time = [], []
    for seed in range(3):
        state = searched(space, seed, noise=0.03)
        truth = SimulatedEvaluator(space, TERMS, seed=seed)
        least = min(
            truth.latency_ms(decode(found.genome, space)) for found in state.evaluated.values() if found.outcome.ok
        )
        in_order = ranked(state, space)
        keys = [placement.key for placement in in_order]
        assert len(state.latency_ms) < len(state.evaluated)
        assert sorted(keys) == sorted(state.latency_ms)
        assert state.hall[0] in keys[:2]
        by_order.append(truth.latency_ms(in_order[0]) / least)
        by_time.append(truth.latency_ms(decode(state.evaluated[state.hall[0]].genome, space)) / least)
    assert mean(by_order) - 1 < (mean(by_time) - 1) / 2
