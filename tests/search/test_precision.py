"""With two objectives the search finds the fastest placement within a budget of error, and the front around it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from collage_evo.codec import from_json, to_json
from collage_evo.config import Settings
from collage_evo.errors import InputError
from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.cover.front import CoverFront, cover_fronts
from collage_evo.genome.encoding import decode, place
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective
from collage_evo.genome.selection import Individual, fitness_of, hypervolume, survivors, violation
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.variation import random_genome
from collage_evo.patterns.match import Match
from collage_evo.report.progress import LineReporter
from collage_evo.run.search import SearchRecord, run_search
from collage_evo.search.evolution.acquisition import slope_at
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.origin import Way
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import Seeds, make_seeds
from collage_evo.search.evolution.state import SearchState, new_state
from collage_evo.search.surrogate.terms import TermMap, TermModel
from tests.support.precise import BUDGET, CHAINS, chain_optimum_ms, predicted_error, well_told
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_graph

BOTH = (Objective.LATENCY, Objective.ERROR)
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
    return Evolution(target.space, target, chosen, Budget(evaluations), lambda: 0.0, seeds.named)


@pytest.fixture(scope="module")
def states(target: SimulatedEvaluator, seeds: Seeds) -> list[SearchState]:
    found: list[SearchState] = []
    search(target, seeds, 60).run(new_state(0, WITHIN), found.append)
    return found


def front_of(space: SearchSpace, budget: float) -> CoverFront:
    """All of the front as predicted."""
    *_, last = cover_fronts(space, Objective.ERROR, budget, cheapest_covers(space).covers[0])
    return last


def test_seeds_go_from_the_fastest_to_the_exact_and_reach_the_optimum_of_what_they_are_told() -> None:
    told = replace(well_told(CHAINS[1]), effects=NonAdditive()).make()
    front = front_of(told.space, BUDGET)
    hull = front.hull
    assert len(hull) >= 4
    assert [c.ms for c in hull] == sorted(c.ms for c in hull)
    slopes = [(b.ms - a.ms) / (a.added - b.added) for a, b in pairwise(hull)]
    assert slopes == sorted(slopes)
    assert hull[-1].added == 0
    for cover in hull:
        placement = place(cover.matches, told.space)
        assert told.latency_ms(placement) <= cover.ms + 1e-9
        assert told.error(placement) == pytest.approx(math.sqrt(cover.added))
    best = min(cover.ms for cover in hull if cover.added <= BUDGET**2)
    optimum = chain_optimum_ms(told)
    assert optimum - 1e-9 <= best <= 1.03 * optimum
    # No placement within the budget lies below the hull, at its slope there.
    bound = min(cover.ms + front.slope * (cover.added - BUDGET**2) for cover in hull)
    assert bound <= optimum + 1e-9


@pytest.mark.parametrize("order", [("exact", "rough"), ("rough", "exact")])
def test_where_errors_win_no_time_the_exact_cover_is_the_front(order: tuple[str, str]) -> None:
    matches = tuple(Match(1 << node, backend) for backend in order for node in range(2))
    costs = CostModel((1.0,) * 4, {match.engine: Border(0.0, 0.0) for match in matches})
    error2 = tuple(1e-4 if match.backend == "rough" else 0.0 for match in matches)
    space = SearchSpace(make_graph([[], [0]]), matches, costs, terms={Objective.ERROR: error2})
    (cover,) = front_of(space, BUDGET).hull
    assert cover.added == 0.0


def test_a_budget_that_is_no_bound_has_no_price(target: SimulatedEvaluator) -> None:
    assert front_of(target.space, math.inf).slope == 0
    exact = replace(target.space, terms={Objective.ERROR: (0.0,) * len(target.space.matches)})
    assert len(front_of(exact, BUDGET).hull) == 1


def test_seeds_name_each_engine_and_the_front(target: SimulatedEvaluator, seeds: Seeds) -> None:
    ways = [origin.way for origin, _ in seeds.named]
    assert ways[0] is Way.DYNAMIC_PROGRAM, "without a budget there are no levels"
    assert ways.count(Way.FRONT_COVER) >= 3
    space, placements = target.space, {decode(genome, target.space) for _, genome in seeds.named}
    assert {engine_placement(space, engine) for engine in space.engines} <= placements
    errors = [predicted_error(target.space, decode(genome, target.space)) for _, genome in seeds.named]
    assert min(errors) == 0
    assert errors[ways.index(Way.FRONT_COVER)] == 0, "the exact end, as soon as it is known"


def test_seeds_are_made_one_by_one_as_they_are_asked_for(target: SimulatedEvaluator) -> None:
    seeds = make_seeds(target.space, bounds=WITHIN)
    assert not seeds.made
    first = list(islice(seeds, 2))
    assert list(seeds.made) == first
    assert list(seeds)[:2] == first
    assert seeds.named == seeds.made


def test_finds_the_fastest_within_the_budget_of_a_target_that_is_not_as_told() -> None:
    hard = CHAINS[1].make()
    seeds = make_seeds(hard.space, bounds=WITHIN)
    found = search(hard, seeds, 90, screen_factor=12, climb=20).run(new_state(0, WITHIN))
    optimum = chain_optimum_ms(hard)
    tried = [decode(genome, hard.space) for _, genome in seeds.named]
    seeded = min(hard.latency_ms(p) for p in tried if hard.error(p) <= BUDGET)
    assert found.best is not None
    assert found.best.outcome.error is not None
    assert found.best.outcome.error <= BUDGET
    assert optimum - 1e-9 <= found.best_ms <= 1.04 * optimum
    assert found.best_ms < seeded


def test_best_and_ranked_keep_the_budget(target: SimulatedEvaluator, states: list[SearchState]) -> None:
    state = states[-1]
    kept = {key for key, found in state.evaluated.items() if (found.outcome.error or 0.0) <= BUDGET}
    assert 0 < len(kept) < len(state.evaluated)
    keys = [placement.key for placement in ranked(state, target.space)]
    assert set(keys) == kept
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
    given = search(target, seeds, 16).run(new_state(0, WITHIN, (99.0, 0.5)))
    assert given.reference == (99.0, 0.5)
    stuck = search(target, seeds, 16, min_gain=0.5, patience=1)
    after = stuck.step(stuck.step(new_state(0, WITHIN)))
    assert (after.stale, stuck.stopped(after)) == (1, "evaluations")


def individual(key: str, ms: float, error: float, genome: object = None) -> Individual:
    return Individual(key, genome, fitness_of(BOTH)((ms, error)))  # type: ignore[arg-type]


def test_hypervolume_is_the_share_of_the_box_that_the_front_dominates() -> None:
    front = [individual("a", 1, 1.0), individual("b", 2, 0.5), individual("beyond", 5, 0.0)]
    assert hypervolume(front, (4.0, 2.0)) == pytest.approx(0.5)
    assert hypervolume([], (4.0, 2.0)) == 0


def test_the_fastest_within_the_budget_survive_a_crowded_front() -> None:
    pool = [individual(f"front{i}", 10 - i, i / 10) for i in range(10)]
    near = [individual("near", 7.01, 0.3), individual("nearer", 7.005, 0.3)]
    kept = survivors(pool + near, GaSettings(population=6, elite=3), random.Random(0), bounds=(0.3,))
    assert [one.key for one in kept[:3]] == ["front3", "nearer", "near"]
    assert len({one.key for one in kept}) == 6
    assert {"front0", "front9"} <= {one.key for one in kept}


def test_what_keeps_the_budget_comes_first_and_then_what_is_fastest() -> None:
    found = [violation(values, (BUDGET,)) for values in ((8.0, 0.0), (9.0, BUDGET), (1.0, 0.011), (0.5, 0.02))]
    assert found == sorted(found)
    assert violation((9.0, 0.005, 3.0), (BUDGET, 3.0)) < violation((8.0, 0.005, 3.1), (BUDGET, 3.0))


def test_the_price_of_an_error_is_the_slope_of_what_was_measured() -> None:
    front = [(1.0, 10.0), (2.0, 4.0), (3.5, 3.9), (4.0, 1.0), (9.0, 0.0)]
    assert slope_at(front, 3.0) == pytest.approx(2 / 3)  # not by way of the point above the hull
    assert slope_at(front, 0.5) == pytest.approx(5.0)
    assert slope_at(front, 20.0) == 0
    assert slope_at(front[:1], 3.0) == 0


def test_error_model_learns_what_it_was_told_wrong(target: SimulatedEvaluator) -> None:
    space, features = target.space, TermMap(target.space, Objective.ERROR)
    rng = random.Random(1)
    placements = [decode(random_genome(space, rng), space) for _ in range(120)]
    rows = [features.vector(placement) for placement in placements]
    truth = [target.error(placement) for placement in placements]

    def missed(model: TermModel) -> float:
        unseen = zip(rows[80:], truth[80:], strict=True)
        return float(np.mean([abs((model.value(row, model.mean) / error) ** 2 - 1) for row, error in unseen]))

    untold = TermModel(features, [], [])
    for placement, row in zip(placements[:5], rows[:5], strict=True):
        assert untold.value(row, untold.mean) == pytest.approx(predicted_error(space, placement))
    learned = TermModel(features, rows[:80], truth[:80])
    assert missed(learned) < 0.4 * missed(untold)

    def spread(model: TermModel) -> float:
        samples = [model.sample(np.random.default_rng(seed)) for seed in range(20)]
        ratios = [np.std([(model.value(r, s) / model.value(r, model.mean)) ** 2 for s in samples]) for r in rows[80:]]
        return float(np.mean(ratios))

    assert spread(learned) < 0.5 * spread(untold)
    exact = next(match for match in space.usable if not space.terms[Objective.ERROR][match])
    assert learned.by_match(learned.mean)[exact] == 0


def test_errors_on_another_scale_are_learned_and_gains_count_as_none(target: SimulatedEvaluator) -> None:
    """A metric's drop is not the error of the numbers, and may be below zero."""
    features, rng = TermMap(target.space, Objective.ERROR), random.Random(2)
    placements = [decode(random_genome(target.space, rng), target.space) for _ in range(60)]
    rows = [features.vector(placement) for placement in placements]
    drops = [5 * target.error(placement) for placement in placements]
    drops[:3] = [-0.01, 0.0, -0.002]
    model = TermModel(features, rows, drops)
    ratios = [model.value(r, model.mean) / d for r, d in zip(rows[3:], drops[3:], strict=True)]
    assert 0.9 < float(np.median(ratios)) < 1.1


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
