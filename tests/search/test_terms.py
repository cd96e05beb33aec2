"""The learned model of errors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collage_evo.genome.encoding import decode
from collage_evo.genome.outcome import Objective
from collage_evo.genome.variation import random_genome
from collage_evo.search.surrogate.terms import TermMap, TermModel
from tests.support.precise import CHAINS, predicted_error
from tests.support.simulated_target import SimulatedEvaluator


@pytest.fixture(scope="module")
def target() -> SimulatedEvaluator:
    return CHAINS[0].make(noise=0.01)


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
