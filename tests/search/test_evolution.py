"""The search improves, repeats itself exactly, measures nothing twice and survives failures."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from collage_evo.codec import from_json, from_plain, to_json, to_plain
from collage_evo.errors import ConfigError, InputError
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.encoding import decode
from collage_evo.genome.genome import Genome
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.settings import MUTATION_WEIGHTS, Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.variation import MUTATIONS, random_genome
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.acquisition import Acquisition
from collage_evo.search.evolution.breeding import Breeder
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.seeds import NEAR_SEEDS, make_seeds
from collage_evo.search.evolution.state import SearchState, new_state
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import chain, make_space, resnet_like, small_space

MIXED = NonAdditive(layout=0.5, region=0.03, contention=0.02)


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return make_space(resnet_like(3), random.Random(5), engines=4)


def search(
    space: SearchSpace, target: SimulatedEvaluator, evaluations: int = 60, settings: GaSettings | None = None
) -> Evolution:
    seeds = tuple(make_seeds(space))
    chosen = settings or GaSettings(patience=0)
    return Evolution(space, target, chosen, Budget(evaluations), lambda: 0.0, seeds)


def test_seeds_are_covers_single_engines_and_partitions(space: SearchSpace) -> None:
    ways = [origin.way for origin, _ in make_seeds(space)]
    assert {Way.DYNAMIC_PROGRAM, Way.NEXT_COVER, Way.DIVERSE_COVER, Way.SINGLE, Way.GREEDY} <= set(ways)
    assert ways[0] is Way.DYNAMIC_PROGRAM
    assert ways.count(Way.NEXT_COVER) <= NEAR_SEEDS


def test_unseeded_search_reaches_the_optimum_of_an_additive_target(space: SearchSpace) -> None:
    optimum = make_seeds(space).dp.cost_ms
    found = search(space, SimulatedEvaluator(space), 100, GaSettings(patience=0, seeded=False)).run()
    assert optimum - 1e-9 <= found.best_ms <= optimum * 1.02


def test_beats_every_seed_on_a_non_additive_target_and_measures_nothing_twice(space: SearchSpace) -> None:
    target = SimulatedEvaluator(space, MIXED)
    seeds = [target.latency_ms(decode(genome, space)) for _, genome in make_seeds(space)]
    found = search(space, target).run()
    assert found.best_ms < min(0.99 * seeds[0], *seeds)
    assert 0 < found.best_evaluation <= found.evaluations == 60
    assert len(target.evaluated) == len(set(target.evaluated)) == 60


@dataclass(frozen=True)
class Late:
    """A target on which every third placement that is asked for the first time is not ready yet."""

    target: SimulatedEvaluator
    asked: list[str]

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome | None]:
        outcomes: list[Outcome | None] = []
        for placement in placements:
            late = placement.key not in self.asked and len(self.asked) % 3 == 1
            self.asked.append(placement.key)
            outcomes.append(None if late else self.target.outcome(placement))
        return outcomes


def test_what_was_not_ready_is_measured_in_the_next_generation_resumed_or_not(space: SearchSpace) -> None:
    late = Late(SimulatedEvaluator(space, MIXED), [])
    states: list[SearchState] = []
    seeds = tuple(make_seeds(space))
    evolution = Evolution(space, late, GaSettings(patience=0), Budget(40), lambda: 0.0, seeds)
    found = evolution.run(on_generation=states.append)
    assert found.evaluations == 40
    assert not found.pending
    for before, after in pairwise(states):
        assert from_plain(to_plain(before), SearchState) == before
        assert {decode(genome, space).key for genome, _ in before.pending} <= after.evaluated.keys()
    assert sum(bool(state.pending) for state in states) > 2
    kinds = {one.kind for one in found.evaluated.values() if one.generation == 1}
    assert any(kind.seeded for kind in kinds), "a seed that was not ready is still one"


def test_results_depend_on_the_seed_and_nothing_else(space: SearchSpace) -> None:
    def run(seed: int) -> SearchState:
        random.seed(random.SystemRandom().random())
        return search(space, SimulatedEvaluator(space, MIXED), 25, GaSettings(seed=seed)).run()

    first = run(1)
    assert run(1) == first
    assert run(2).evaluated.keys() != first.evaluated.keys()


@pytest.mark.parametrize("failures", [0.05, 1.0])
def test_failing_placements_do_not_stop_the_search(space: SearchSpace, failures: float) -> None:
    found = search(space, SimulatedEvaluator(space, NonAdditive(failures=failures)), 40).run()
    unfit = [key for key, record in found.evaluated.items() if not record.outcome.ok]
    assert unfit
    assert found.evaluations == 40
    assert not set(unfit) & {*found.population, *found.hall}
    assert all("could not build" in found.evaluated[key].outcome.reason for key in unfit)
    assert (found.best is None) == math.isinf(found.best_ms) == (failures == 1.0)


def test_small_space_is_exhausted_rather_than_searched_for_ever() -> None:
    tiny = make_space(chain(4), random.Random(0), engines=2, extra=0)
    run = search(tiny, SimulatedEvaluator(tiny), 10_000, GaSettings(patience=0, random_share=1.0))
    found = run.run()
    assert (found.exhausted, run.stopped(found)) == (True, True)
    rng = random.Random(0)
    possible = {decode(random_genome(tiny, rng), tiny).key for _ in range(1000)}
    assert len(possible - found.evaluated.keys()) < 0.1 * len(possible)


def test_stops_without_gain_or_time(space: SearchSpace) -> None:
    run = search(space, SimulatedEvaluator(space), 10_000, GaSettings(patience=3))
    found = run.run()
    assert (run.stopped(found), found.stale) == (True, 3)
    ticks = iter(range(1000))
    timed = Evolution(
        space, SimulatedEvaluator(space), GaSettings(), Budget(seconds=12), lambda: float(next(ticks))
    )
    found = timed.run()
    assert timed.stopped(found)
    assert found.seconds == 12
    assert len(found.log) == found.generation == 4


@dataclass(frozen=True)
class Approximate:
    """A simulated target on which each node adds an error of its engine: the faster the engines, the larger."""

    target: SimulatedEvaluator
    error: Mapping[Engine, float]

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        asked = tuple(placements)
        found = zip(self.target.evaluate(asked), asked, strict=True)
        return [replace(outcome, error=self._error(p)) if outcome.ok else outcome for outcome, p in found]

    def _error(self, placement: Placement) -> float:
        return sum(self.error[region.engine] * region.nodes.bit_count() for region in placement.regions)


def test_several_objectives_keep_the_front_that_nothing_dominates(space: SearchSpace) -> None:
    both = (Objective.LATENCY, Objective.ERROR)
    errors = {engine: 1e-4 * 3**index for index, engine in enumerate(space.engines)}
    target = Approximate(SimulatedEvaluator(space, NonAdditive(layout=0.5, failures=0.02)), errors)
    settings = GaSettings(population=12, offspring=6, patience=0, screen_factor=3, climb=4)
    evolution = Evolution(space, target, settings, Budget(60), lambda: 0.0, tuple(make_seeds(space)))
    states: list[SearchState] = []
    found = evolution.run(new_state(0, {Objective.ERROR: math.inf}), states.append)
    values = {key: one.outcome.objectives(both) for key, one in found.evaluated.items() if one.outcome.ok}

    def dominated(key: str) -> bool:
        own = values[key]
        return any(v != own and all(a <= b for a, b in zip(v, own, strict=True)) for v in values.values())

    assert set(found.hall) == {key for key in values if not dominated(key)}
    assert len(found.hall) > 2
    assert [values[key][0] for key in found.hall] == sorted(values[key][0] for key in found.hall)
    assert found.best_ms == min(latency for latency, _ in values.values())
    # The most exact one survives as well as the fastest.
    for objective in range(2):
        assert min(values, key=lambda key: values[key][objective]) in found.population
    revived = from_json(to_json(states[2]), SearchState)
    assert revived == states[2]
    assert revived.objectives == both
    assert evolution.run(revived) == found


def test_an_objective_that_was_not_measured_is_an_error() -> None:
    assert Outcome(2.0, error=0.1).objectives((Objective.ERROR, Objective.LATENCY)) == (0.1, 2.0)
    with pytest.raises(InputError, match="no error was measured"):
        Outcome(2.0).objectives((Objective.LATENCY, Objective.ERROR))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tournament": 0}, r"search\.ga\.tournament is 0; it must be from 1 to 50"),
        ({"elite": 30}, r"search\.ga\.elite is 30, more than"),
        (dict.fromkeys(MUTATION_WEIGHTS, 0.0), "all other mutations are 0"),
    ],
)
def test_settings_out_of_range_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GaSettings(**values)


def test_mutations_are_drawn_by_their_weights(space: SearchSpace) -> None:
    assert {mutation.__name__ for mutation in MUTATIONS} == set(MUTATION_WEIGHTS)
    only_splits = GaSettings(**{**dict.fromkeys(MUTATION_WEIGHTS, 0.0), "split_region": 0.5})
    genome = random_genome(space, random.Random(0))

    def children(settings: GaSettings) -> list[Genome]:
        breeder = Breeder(FeatureMap(space), settings, (), set(), random.Random(1))
        return [breeder.toolbox.mutate(genome) for _ in range(50)]

    assert {child.choices for child in children(only_splits)} == {genome.choices}
    assert len({child.choices for child in children(GaSettings())}) > 10


def test_a_child_picked_at_random_is_not_far_behind_as_far_as_is_known(space: SearchSpace) -> None:
    breeder = Breeder(FeatureMap(space), GaSettings(random_share=1.0, climb=0), (), set(), random.Random(0))
    surrogate = Surrogate(breeder.features, [], [])
    goal = Acquisition(surrogate.mean)
    pool = list(breeder.batch([], surrogate, 12))
    fast = min(pool, key=lambda candidate: candidate.features.predicted)
    behind_ms = 1.1 * space.policy.random_within * fast.features.predicted
    slow = replace(fast, features=replace(fast.features, predicted=behind_ms))
    assert all(breeder._pick([fast, slow], [], goal) is fast for _ in range(20))
    assert breeder._pick([slow], [], goal) is slow
    below = replace(fast, features=replace(fast.features, predicted=-1e6))
    assert breeder._pick([below], [], goal) is below


@pytest.mark.parametrize(
    ("time_for", "sizes", "evaluations"), [(100, [10, 5, 5, 2], 22), (12, [10, 5, 8], 12)], ids=["budget", "time"]
)
def test_a_search_asks_for_batches_until_its_budget_or_the_evaluators_time_is_spent(
    space: SearchSpace, time_for: int, sizes: list[int], evaluations: int
) -> None:
    asked: list[int] = []

    class Closing:
        def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome | None]:
            outcomes = [Outcome(space.predict(placement), n=1) for placement in placements]
            left = time_for - sum(asked)
            asked.append(len(outcomes))
            return [outcome if place < left else None for place, outcome in enumerate(outcomes)]

    settings = GaSettings(population=10, offspring=5, patience=0)
    found = Evolution(space, Closing(), settings, Budget(22), lambda: 0.0).run(new_state(0))
    assert (asked, found.evaluations) == (sizes, evaluations)
    assert bool(found.pending) == (evaluations < 22)


def test_the_fastest_baseline_is_the_first_seed_without_a_budget() -> None:
    space = small_space(0)
    backend, variant = space.engines[-1]
    baseline_ms = {engine: 9.0 - number for number, engine in enumerate(space.engines)}
    kind, genome = next(iter(make_seeds(space, baseline_ms=baseline_ms)))
    assert kind == Origin(Way.SINGLE, (backend,), variant)
    assert decode(genome, space) == engine_placement(space, (backend, variant))
    assert next(iter(make_seeds(space)))[0] == Origin(Way.DYNAMIC_PROGRAM)
