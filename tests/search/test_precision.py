"""Within a budget of error the search finds the fastest placement, and the front around it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from collage_evo.codec import from_json, to_json
from collage_evo.config import Settings
from collage_evo.errors import InputError
from collage_evo.genome.encoding import decode
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.report.progress import LineReporter
from collage_evo.run.search import SearchRecord, run_search
from collage_evo.search.evolution.acquisition import slope_at
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.origin import Way
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import Seeds, make_seeds
from collage_evo.search.evolution.state import SearchState, new_state
from collage_evo.search.surrogate.terms import TermMap
from tests.support.precise import BUDGET, CHAINS, chain_optimum_ms, predicted_error
from tests.support.simulated_target import SimulatedEvaluator
from tests.support.typed import not_none

WITHIN = {Objective.ERROR: BUDGET}
PRINT = Fingerprint("model", "cpu, 1 thread", ("a 1",), "matches")
SHORT = CHAINS[0]
SETTINGS = GaSettings(patience=0, population=16, offspring=6, screen_factor=6, climb=10)


@pytest.fixture(scope="module")
def target() -> SimulatedEvaluator:
    return SHORT.make(noise=0.01)


@pytest.fixture(scope="module")
def seeds(target: SimulatedEvaluator) -> Seeds:
    return make_seeds(target.space, bounds=WITHIN)


def search(target: SimulatedEvaluator, seeds: Seeds, evaluations: int, **settings: float) -> Evolution:
    chosen = replace(SETTINGS, **settings)
    return Evolution(target.space, target, chosen, Budget(evaluations), lambda: 0.0, tuple(seeds))


@pytest.fixture(scope="module")
def states(target: SimulatedEvaluator, seeds: Seeds) -> list[SearchState]:
    found: list[SearchState] = []
    search(target, seeds, 60).run(new_state(0, WITHIN), found.append)
    return found


def test_seeds_name_each_engine_and_the_front(target: SimulatedEvaluator, seeds: Seeds) -> None:
    ways = [origin.way for origin, _ in seeds]
    assert ways[0] is Way.DYNAMIC_PROGRAM, "without a budget there are no levels"
    assert ways.count(Way.FRONT_COVER) >= 3
    space, placements = target.space, {decode(genome, target.space) for _, genome in seeds}
    assert {engine_placement(space, engine) for engine in space.engines} <= placements
    errors = [predicted_error(target.space, decode(genome, target.space)) for _, genome in seeds]
    assert min(errors) == 0
    assert errors[ways.index(Way.FRONT_COVER)] == 0, "the exact end, as soon as it is known"


def test_seeds_are_made_one_by_one_as_they_are_asked_for(target: SimulatedEvaluator) -> None:
    seeds = make_seeds(target.space, bounds=WITHIN)
    assert not seeds.made
    first = list(islice(seeds, 2))
    assert list(seeds.made) == first
    assert list(seeds)[:2] == first
    assert tuple(seeds) == seeds.made


def test_finds_the_fastest_within_the_budget_of_a_target_that_is_not_as_told() -> None:
    hard = CHAINS[1].make()
    seeds = make_seeds(hard.space, bounds=WITHIN)
    found = search(hard, seeds, 90, screen_factor=12, climb=20).run(new_state(0, WITHIN))
    optimum = chain_optimum_ms(hard)
    tried = [decode(genome, hard.space) for _, genome in seeds]
    seeded = min(hard.latency_ms(p) for p in tried if hard.error(p) <= BUDGET)
    assert found.best is not None
    assert not_none(found.best.outcome.error) <= BUDGET
    assert optimum - 1e-9 <= found.best_ms <= 1.04 * optimum
    assert found.best_ms < seeded


def test_best_and_ranked_keep_the_budget(target: SimulatedEvaluator, states: list[SearchState]) -> None:
    state = states[-1]
    kept = {key for key, found in state.evaluated.items() if (found.outcome.error or 0.0) <= BUDGET}
    assert 0 < len(kept) < len(state.evaluated)
    assert {placement.key for placement in ranked(state, target.space)} == kept
    assert state.best_ms == min(state.latency_ms[key] for key in kept)
    assert state.best_ms > min(state.latency_ms.values())
    looser = replace(state, bounds={Objective.ERROR: math.inf})
    assert looser.best_ms == min(state.latency_ms.values())
    assert len(ranked(looser, target.space)) == len(state.latency_ms)
    none = replace(state, bounds={Objective.ERROR: -1.0})
    assert (none.best, none.best_ms, ranked(none, target.space)) == (None, math.inf, ())


def test_what_a_part_of_the_samples_alone_says_to_keep_the_budget_is_ranked_last(
    target: SimulatedEvaluator, states: list[SearchState]
) -> None:
    state = states[-1]
    first, *others = (placement.key for placement in ranked(state, target.space))
    best = state.evaluated[first]
    told = {**state.evaluated, first: replace(best, outcome=replace(best.outcome, rough=True))}
    keys = [placement.key for placement in ranked(replace(state, evaluated=told), target.space)]
    assert keys == [*others, first]


def test_interrupted_after_any_generation_and_resumed_equals_uninterrupted(
    target: SimulatedEvaluator, seeds: Seeds, states: list[SearchState]
) -> None:
    for state in states[:-1:3]:
        revived = from_json(to_json(state), SearchState)
        assert revived == state
        assert search(target, seeds, 60).run(revived) == states[-1]


def test_progress_is_hypervolume_from_a_corner_that_stays(
    target: SimulatedEvaluator, seeds: Seeds, states: list[SearchState]
) -> None:
    volumes = [record["hypervolume"] for record in states[-1].log]
    assert volumes == sorted(volumes)
    assert 0 < volumes[0] < volumes[-1] < 1
    assert {state.reference for state in states} == {states[0].reference}
    assert all(record["best"] >= states[-1].best_ms for record in states[-1].log)
    assert search(target, seeds, 16).run(new_state(0, WITHIN, (99.0, 0.5))).reference == (99.0, 0.5)
    stuck = search(target, seeds, 16, min_gain=0.5, patience=1)
    after = stuck.step(stuck.step(new_state(0, WITHIN)))
    assert (after.stale, after.evaluations, stuck.stopped(after)) == (1, 16, True)


def test_the_price_of_an_error_is_the_slope_of_what_was_measured() -> None:
    front = [(1.0, 10.0), (2.0, 4.0), (3.5, 3.9), (4.0, 1.0), (9.0, 0.0)]
    assert slope_at(front, 3.0) == pytest.approx(2 / 3)  # not by way of the point above the hull
    assert slope_at(front, 0.5) == pytest.approx(5.0)
    assert slope_at(front, 20.0) == 0
    assert slope_at(front[:1], 3.0) == 0


def test_what_is_known_roughly_teaches_the_error_model_nothing(
    target: SimulatedEvaluator, seeds: Seeds, states: list[SearchState]
) -> None:
    evolution, term, known = search(target, seeds, 60), TermMap(target.space, Objective.ERROR), states[-1].evaluated
    some = set(list(known)[::3])
    told = {
        key: replace(one, outcome=replace(one.outcome, error=0.5, rough=True)) if key in some else one
        for key, one in known.items()
    }
    untold = {key: one for key, one in known.items() if key not in some}
    rough, none, all_ = (evolution._learned(replace(states[-1], evaluated=e), term) for e in (told, untold, known))
    assert np.array_equal(rough.mean, none.mean)
    assert not np.array_equal(rough.mean, all_.mean)


def searched(
    target: SimulatedEvaluator, seeds: Seeds, directory: Path, start: SearchState, evaluations: int
) -> SearchRecord:
    ga = Settings(population=12, offspring=4, screen_factor=2, climb=2, program_share=0.1, patience=0)
    return run_search(
        target.space, seeds, target, ga, Budget(evaluations), directory, PRINT, LineReporter(),
        clock=lambda: 0.0, start=start,
    )


def test_a_run_ranks_what_keeps_the_budget_and_goes_on_with_another(
    target: SimulatedEvaluator, seeds: Seeds, tmp_path: Path
) -> None:
    found = searched(target, seeds, tmp_path, new_state(0, WITHIN), 20)
    assert all(target.error(placement) <= BUDGET for placement in found.ranked)
    assert any(outcome.error is not None and outcome.error > BUDGET for outcome in found.outcomes.values())
    best = [point["best_ms"] for point in found.convergence]
    assert best[-1] == min(found.outcomes[placement.key].latency_ms or math.inf for placement in found.ranked)
    # It goes on with another budget, as far as its objectives are the same.
    looser = searched(target, seeds, tmp_path, new_state(0, {Objective.ERROR: 1.0}), 24)
    assert looser.state.evaluations == 24
    assert any(target.error(placement) > BUDGET for placement in looser.ranked)
    with pytest.raises(InputError, match="for latency and error, this one is for latency;"):
        searched(target, seeds, tmp_path, new_state(0), 28)


def test_where_nothing_keeps_the_budget_nothing_is_ranked(
    target: SimulatedEvaluator, seeds: Seeds, tmp_path: Path
) -> None:
    off = replace(target, node_error2=dict.fromkeys(target.node_error2, 1e-6) | {
        (0, engine): 1e-3 for engine in target.space.engines
    })  # fmt: skip
    found = searched(off, seeds, tmp_path, new_state(0, WITHIN), 16)
    assert not found.ranked
    assert found.outcomes
