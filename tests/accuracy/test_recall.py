"""Recall of nearest neighbours: against figures worked out by hand and by another way of counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.judge import judge, judge_closely
from collage_evo.accuracy.losses import Pairs
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError
from tests.support.typed import not_none

RNG = np.random.default_rng(0)


def pairs_of(expected: np.ndarray, given: np.ndarray) -> Pairs:
    """A sample for each vector, of a text of a length of its own; its outputs are for each token, and pooled."""
    tokens = [np.ones((1, 3 + index, 8)) for index in range(len(expected))]
    return [
        (Sample({}, {}, {"tokens": one, "pooled": right[None]}), {"tokens": 2 * one, "pooled": made[None]})
        for one, right, made in zip(tokens, expected, given, strict=True)
    ]


def on_circle(*degrees: float) -> np.ndarray:
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def test_it_is_the_share_of_neighbours_that_stay() -> None:
    right, moved = on_circle(0, 10, 80, 95), on_circle(0, 50, 80, 95)
    found = judge_closely(pairs_of(right, moved), load_metric("recall@1"))
    assert found.singles == (0.0, 1.0, 0.0, 0.0), "the second one's neighbour was the first, and is the third"
    assert (found.error, found.score, found.reference_score, found.changed) == (0.25, 0.75, 1.0, 0.25)
    assert found.low is not None
    assert judge(pairs_of(right, 3.0 * right), load_metric("recall@2")) == 0.0, "lengths do not matter"
    assert judge(pairs_of(right, moved), load_metric("recall@1"), "worst") == 1.0


def test_it_agrees_with_sorting_all_cosines_and_has_an_interval() -> None:
    right = RNG.standard_normal((60, 24))
    made = right + 0.3 * RNG.standard_normal(right.shape)

    def nearest(vectors: np.ndarray) -> list[set[int]]:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        order = np.argsort(-(unit @ unit.T - 2 * np.eye(len(unit))), axis=1)
        return [set(map(int, row[:10])) for row in order]

    kept = np.mean([len(one & other) / 10 for one, other in zip(nearest(right), nearest(made), strict=True)])
    found = judge_closely(pairs_of(right, made), load_metric("recall@10"))
    assert found.score == pytest.approx(kept)
    assert 0.0 < not_none(found.low) < found.error < not_none(found.high) < 1.0


def test_vectors_of_a_batch_are_neighbours_too() -> None:
    right, made = on_circle(0, 10, 80, 95), on_circle(0, 50, 80, 95)
    batches = [(Sample({}, {}, {"pooled": right[part]}), {"pooled": made[part]}) for part in (slice(3), slice(3, 4))]
    found = judge_closely(batches, load_metric("recall@1"))
    assert found.singles == (pytest.approx(1 / 3), 0.0)
    assert found.error == 0.25


def test_neighbours_that_are_equally_near_may_change_places() -> None:
    twins = np.repeat(RNG.standard_normal((4, 16)), 3, axis=0)
    rounded = twins * (1.0 + 1e-8 * RNG.standard_normal(twins.shape))
    assert judge(pairs_of(twins, rounded), load_metric("recall@1")) == 0.0


def test_what_is_not_finite_or_of_another_shape_is_wrong() -> None:
    pairs = pairs_of(right := RNG.standard_normal((6, 16)), right)
    for broken in (np.full((1, 16), np.nan), np.zeros((1, 15))):
        spoilt = [*pairs[:-1], (pairs[-1][0], {"tokens": np.zeros(0), "pooled": broken})]
        assert judge(spoilt, load_metric("recall@2")) == math.inf


def test_it_is_shown_for_embeddings_of_one_length_if_there_are_many() -> None:
    def shown(*lengths: int) -> bool:
        pairs = [(Sample({}, {}, {"y": one}), {"y": one}) for one in (RNG.standard_normal((1, n)) for n in lengths)]
        return "recall@10" in {quality.name for quality in judge_closely(pairs, load_metric("cosine")).other_metrics}

    assert shown(*[24] * 50)
    assert not shown(*[24] * 49)
    assert not shown(*range(24, 80)), "sound of several lengths"
    assert not shown(*[10000] * 50)


def test_outputs_and_numbers_that_do_not_fit_are_told_in_one_line() -> None:
    with pytest.raises(InputError, match="recall@10 needs 12 samples or more in each part of the data, and one has"):
        load_metric("recall@10").reference([sample for sample, _ in pairs_of(np.eye(6), np.eye(6))])
    tokens = [Sample({}, {}, {"tokens": np.ones((1, steps, 8))}) for steps in (3, 4)]
    with pytest.raises(InputError, match="recall@2 needs an output of one vector for each sample"):
        load_metric("recall@2").reference(tokens)
