"""Intervals cover what they say: against closed forms, and against known truths over many draws."""

from __future__ import annotations

import numpy as np
import pytest

from collage_evo.statistics import (
    bootstrap_interval,
    median_interval,
    net_share_interval,
    robust_deviation,
    share_interval,
)
from tests.support.typed import not_none


def test_the_interval_holds_the_median_and_is_repeatable() -> None:
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02]
    low, high = median_interval(values)
    assert low <= 1.01 <= high
    assert (low, high) == median_interval(values)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_where_samples_are_many() -> None:
    values = np.random.default_rng(1).standard_normal(400)
    found = not_none(bootstrap_interval(lambda drawn: values[drawn].mean(axis=1), len(values)))
    reach = 1.96 * values.std() / 20
    assert found == pytest.approx((values.mean() - reach, values.mean() + reach), abs=0.1 * reach)


def test_too_few_finite_values_have_no_interval() -> None:
    assert bootstrap_interval(lambda drawn: np.full(len(drawn), np.nan), 5) is None
    some = bootstrap_interval(lambda drawn: np.where(np.arange(len(drawn)) < 40, 1.0, np.nan), 5, least=41)
    assert some is None


def test_a_share_s_interval_is_exact() -> None:
    assert share_interval(0, 50) == (0.0, pytest.approx(1 - 0.025 ** (1 / 50)))
    assert share_interval(50, 50)[1] == 1.0


def test_a_net_share_s_interval_covers_at_least_as_often_as_it_says() -> None:
    rng, lost, won, samples = np.random.default_rng(0), 0.05, 0.02, 100
    draws = rng.multinomial(samples, [lost, won, 1 - lost - won], size=300)
    known = {pair: net_share_interval(*map(int, pair), samples) for pair in {tuple(row[:2]) for row in draws}}
    covered = [known[tuple(row[:2])][0] <= lost - won <= known[tuple(row[:2])][1] for row in draws]
    assert np.mean(covered) >= 0.95


def test_the_robust_deviation_is_that_of_normal_values_and_ignores_outliers() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 4001).tolist()
    assert robust_deviation(values) == pytest.approx(2.0, rel=0.05)
    assert robust_deviation([*values, *[1e9] * 100]) == pytest.approx(2.0, rel=0.1)
