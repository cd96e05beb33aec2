"""How wrong results may be follows from what was asked for, the model's own noise, and what a metric gives."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from collage_evo.accuracy.limits import Limits

TOLERANCE = 1e-3


def test_the_front_goes_on_beyond_the_budget() -> None:
    assert Limits.decide(0.02, TOLERANCE).front == 0.1
    assert Limits.decide(0.1, TOLERANCE).front == pytest.approx(0.3)
    assert Limits.decide(0.8, TOLERANCE, by_metric=True, score=80.0).front == 8.0


def test_exact_leaves_room_for_nothing_else_whatever_its_error() -> None:
    exact = Limits.decide("exact", TOLERANCE)
    assert (exact.budget, exact.front, exact.measured, exact.accepted) == (0.0, 0.0, 0.0, TOLERANCE)
    assert exact.allows(1.0, exact=True)
    assert not exact.allows(0.0, exact=False)


def test_float32_keeps_a_small_budget_too_unless_that_is_a_metric_s() -> None:
    assert Limits.decide(1e-5, TOLERANCE).tolerance == 1e-5
    assert Limits.decide(1e-5, TOLERANCE, by_metric=True, score=0.5).tolerance == TOLERANCE


def test_no_limit_is_smaller_than_the_model_s_own_noise() -> None:
    noisy = Limits.decide(1e-3, 1e-4, noise=0.05)
    assert (noisy.tolerance, noisy.budget, noisy.asked) == (0.05, 0.05, 1e-3)
    assert Limits.decide(0.01, 1e-4, noise=0.05, by_metric=True).budget == 0.01, "a drop is no error"
    assert Limits.decide(0.01, 1e-4, noise=math.inf).allows(None, exact=False)


def test_another_budget_leaves_what_was_measured() -> None:
    limits = Limits.decide("1%", TOLERANCE, by_metric=True, score=80.0)
    other = limits.with_budget("2%")
    assert (limits.budget, other.budget, other.asked) == (pytest.approx(0.8), pytest.approx(1.6), "2%")
    assert other.measured == limits.measured
    assert limits.with_budget("exact").budget == 0.0


def test_they_travel_as_plain_values() -> None:
    for limits in (Limits.decide("1%", TOLERANCE, score=3.0), Limits.decide(0.1, TOLERANCE, noise=math.inf)):
        assert Limits(**json.loads(json.dumps(asdict(limits)))) == limits
