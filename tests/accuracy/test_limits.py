"""How wrong results may be follows from what was asked for, the model's own noise, and what a metric gives."""

from __future__ import annotations

import numpy as np
import pytest

from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.metric import RelativeError
from collage_evo.accuracy.samples import Sample
from collage_evo.graph.reference.noise import Noise

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


def test_rounding_excuses_its_own_output_and_widens_neither_tolerance_nor_budget() -> None:
    noisy = Limits.decide(1e-3, 1e-4, {"noisy": Noise(0.05, 0.1), "calm": Noise(1e-5)})
    assert (noisy.tolerance, noisy.budget, noisy.of_pieces) == (1e-4, 1e-3, 0.05)
    assert noisy.excused == {"noisy": Noise(0.05, 0.1)}, "less than the tolerance needs no excuse"
    assert (noisy.excused["noisy"].explains(0.05), noisy.excused["noisy"].explains(0.051)) == (True, False)
    (note,) = noisy.notes()
    assert note == (
        "Rounding alone moves output 'noisy' by up to 5.0e-02: errors up to that count as none, "
        "whatever the budget of 0.001"
    )


def test_of_several_outputs_the_one_that_rounding_moves_counts_for_nothing() -> None:
    sample = Sample({}, expected={"noisy": np.ones(4, np.float32), "calm": np.ones(4, np.float32)})
    given = {"noisy": np.full(4, 1.04, np.float32), "calm": np.full(4, 1.001, np.float32)}
    for excused, error in (({}, 0.04), ({"noisy": Noise(0.05)}, 0.001), ({"noisy": Noise(0.03)}, 0.04)):
        assert RelativeError(excused).scores([(sample, given)]).error == pytest.approx(error, rel=1e-3)


def test_another_budget_leaves_what_was_measured() -> None:
    limits = Limits.decide("1%", TOLERANCE, by_metric=True, score=80.0)
    other = limits.with_budget("2%")
    assert (limits.budget, other.budget, other.asked) == (pytest.approx(0.8), pytest.approx(1.6), "2%")
    assert other.measured == limits.measured
    assert limits.with_budget("exact").budget == 0.0
