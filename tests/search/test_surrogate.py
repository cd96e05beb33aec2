"""The learned cost model starts as the additive one, learns what is wrong with it, and knows what it has not seen."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import decode, encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.greedy import engine_placement
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.variation import random_genome
from collage_evo.graph.ir.kinds import kinds_of
from collage_evo.patterns.match import Placement
from collage_evo.search.surrogate.covers import surrogate_covers
from collage_evo.search.surrogate.features import GROUPS, FeatureMap
from collage_evo.search.surrogate.model import Surrogate
from collage_evo.search.surrogate.regression import MOST_ROWS, Vector
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import encoder_like, equal_copies, make_space, resnet_like


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return make_space(resnet_like(2), random.Random(5), engines=4)


@pytest.fixture(scope="module")
def placements(space: SearchSpace) -> list[Placement]:
    rng = random.Random(1)
    return [decode(random_genome(space, rng), space) for _ in range(160)]


def relative_errors(features: FeatureMap, weights: np.ndarray, some: list[Placement], ms: list[float]) -> float:
    pairs = zip(some, ms, strict=True)
    return float(np.mean([abs(features.vector(p).corrected(weights) / m - 1) for p, m in pairs]))


def test_what_is_rewritten_is_one_engine_with_the_plain_pieces_of_its_backend() -> None:
    space = make_space(resnet_like(2), random.Random(5), engines=4, rewrites=40)
    cheap = tuple(0.1 if match.rewrites else ms for match, ms in zip(space.matches, space.cost.match_ms, strict=True))
    space = replace(space, cost=replace(space.cost, match_ms=cheap))
    features, rng = FeatureMap(space), random.Random(1)
    assert features.width == FeatureMap(make_space(resnet_like(2), random.Random(5), engines=4)).width
    for _ in range(10):
        genome = random_genome(space, rng)
        placement = decode(genome, space)
        none = np.zeros(features.width)
        assert features.vector(placement).corrected(none) == pytest.approx(space.predict(placement))
    (cover,) = surrogate_covers(features, none, genome)
    assert cover.cost_ms == pytest.approx(cheapest_covers(space).cost_ms)
    assert any(space.matches[match].rewrites for match in cover.matches)


def test_learns_what_the_additive_model_gets_wrong(space: SearchSpace, placements: list[Placement]) -> None:
    features = FeatureMap(space)
    target = SimulatedEvaluator(space, NonAdditive(layout=0.4, region=0.03, contention=0.05))
    truth = [target.latency_ms(placement) for placement in placements]
    known = 120
    surrogate = Surrogate(features, [features.vector(p) for p in placements[:known]], truth[:known])
    plain = relative_errors(features, np.zeros(features.width), placements[known:], truth[known:])
    assert relative_errors(features, surrogate.mean, placements[known:], truth[known:]) < 0.3 * plain
    # Samples agree on what was measured, to about the noise; what was not is more open.
    samples = [surrogate.sample(np.random.default_rng(seed)) for seed in range(20)]
    spread = [np.std([features.vector(p).corrected(sample) for sample in samples]) for p in placements]
    assert np.mean(spread[:known]) < 0.7 * np.mean(spread[known:])
    assert np.mean(spread[:known]) < 0.02 * np.mean(truth)


def test_a_disturbed_time_counts_less(space: SearchSpace, placements: list[Placement]) -> None:
    terms = FeatureMap(space)
    target = SimulatedEvaluator(space, NonAdditive(layout=0.4, region=0.03, contention=0.05))
    rows = [terms.vector(placement) for placement in placements]
    truth = [target.latency_ms(placement) for placement in placements]
    odd = 17
    taken = [1.3 * ms if index == odd else ms for index, ms in enumerate(truth)]
    marks = [index == odd for index in range(len(rows))]
    plain, believing, doubting = (
        rows[odd].corrected(Surrogate(terms, rows, some, marked).mean)
        for some, marked in ((truth, []), (taken, []), (taken, marks))
    )
    assert abs(doubting - plain) < 0.3 * abs(believing - plain)
    # Nor does it make other predictions worse.
    others = [placement for index, placement in enumerate(placements) if index != odd]
    right = [ms for index, ms in enumerate(truth) if index != odd]
    errors = [
        relative_errors(terms, Surrogate(terms, rows, taken, marked).mean, others, right) for marked in ([], marks)
    ]
    assert errors[1] < errors[0]


def test_samples_leave_more_open_where_a_time_was_disturbed(space: SearchSpace, placements: list[Placement]) -> None:
    terms = FeatureMap(space)
    rows = [terms.vector(placement) for placement in placements[:30]]
    latency = [space.predict(placement) for placement in placements[:30]]

    def spread(contended: bool) -> float:
        surrogate = Surrogate(terms, rows, latency, [contended] * len(rows))
        samples = [surrogate.sample(np.random.default_rng(seed)) for seed in range(20)]
        return float(np.mean([np.std([row.corrected(sample) for sample in samples]) for row in rows]))

    assert spread(True) > 1.5 * spread(False)


def test_work_is_bounded(space: SearchSpace) -> None:
    features = FeatureMap(space)
    vector = features.vector(place(cheapest_covers(space).covers[0].matches, space))
    slow = Vector(vector.predicted, vector.columns, vector.values)
    vectors, latency = [vector] * MOST_ROWS + [slow] * 50, [10.0] * MOST_ROWS + [90.0] * 50
    full = Surrogate(features, vectors, latency)
    assert np.array_equal(full.mean, Surrogate(features, vectors[:MOST_ROWS], latency[:MOST_ROWS]).mean)


def test_program_under_learned_costs_finds_the_cover_they_make_cheapest(space: SearchSpace) -> None:
    features = FeatureMap(space)
    best = place(cheapest_covers(space).covers[0].matches, space)
    incumbent = encode(best, space)
    unchanged = surrogate_covers(features, np.zeros(features.width), incumbent)
    assert unchanged[0].cost_ms == pytest.approx(cheapest_covers(space).cost_ms)
    engine = space.engines.index(max(r.engine for r in best.regions))
    weights = np.zeros(features.width)
    weights[features.starts[GROUPS[0]] + engine] = 5.0
    avoided = place(surrogate_covers(features, weights, incumbent)[0].matches, space)
    assert not any(region.engine == space.engines[engine] for region in avoided.regions)


def test_dearer_copies_keep_a_model_on_the_host() -> None:
    two = make_space(resnet_like(2), random.Random(5), engines=4, border=0.1, copies=0.3)
    features = FeatureMap(two)
    incumbent = encode(place(cheapest_covers(two).covers[0].matches, two), two)
    weights = np.zeros(features.width)
    for penalty in (False, True):
        for way in (False, True):
            weights[features.copy_column(way)] = 1000.0 if penalty else 0.0
        found = place(surrogate_covers(features, weights, incumbent)[0].matches, two)
        assert any(region.engine in two.cost.off_host for region in found.regions) != penalty


@pytest.mark.parametrize("copies", [0.0, 0.5])
def test_engines_borders_and_copies_add_up_to_the_additive_model(copies: float) -> None:
    space = make_space(resnet_like(2), random.Random(5), engines=4, copies=copies)
    features, rng = FeatureMap(space), random.Random(1)
    for placement in (decode(random_genome(space, rng), space) for _ in range(20)):
        vector = features.vector(placement)
        assert vector.predicted == pytest.approx(space.predict(placement))
        groups = [GROUPS.index(name) for name in ("engine", "border", "copy")]
        *own, moved = (vector.values[features.group_of[vector.columns] == group].sum() for group in groups)
        assert sum(own) + moved == pytest.approx(vector.predicted)
        assert (moved > 0) == (copies > 0)
        assert len(set(vector.columns.tolist())) == len(vector.columns)


def test_what_one_copy_of_a_block_shows_counts_for_the_others() -> None:
    kinds = kinds_of(encoder_like(6))
    space = equal_copies(make_space(encoder_like(6), random.Random(5), engines=3), kinds, 0.0, random.Random(5))
    features, slow = FeatureMap(space), [node for node, kind in enumerate(kinds) if kind == kinds[30]]
    base = engine_placement(space, space.engines[0])
    singles = {node: next(m for m in space.candidates[node] if space.matches[m].engine == space.engines[1])
               for node in slow[1:5] if len(space.candidates[node]) > 1}  # fmt: skip
    assert len(singles) >= 3

    def moved(node: int) -> Placement:
        choices = list(encode(base, space).choices)
        choices[node] = space.candidates[node].index(singles[node])
        return decode(Genome(tuple(choices), (1,) * len(space.edges)), space)

    first, *others = singles
    rows = [features.vector(base), features.vector(moved(first))] * 3
    surrogate = Surrogate(features, rows, [space.predict(base), 1.05 * space.predict(moved(first))] * 3)
    for node in others:
        expected = features.vector(moved(node)).corrected(surrogate.mean) - space.predict(moved(node))
        assert expected > 0.01 * space.predict(base)
