"""A race that may end after any look errs no more often than it says, and ends early where it can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage_evo.fitness.final.sequential import LOOKS, Ratio, Stopping, mean_interval, nominal_significance
from tests.support.races import Noise, race_over

RACES = 1500
QUIET = Noise(layout=0.005, lap=0.01)
BUSY = Noise(layout=0.005, lap=0.04, hit=0.15, hard=10.0)
STOPPING = Stopping()


def test_an_interval_at_one_look_is_students() -> None:
    low, high = mean_interval([0.01, 0.03, 0.02])
    assert (low + high) / 2 == pytest.approx(0.02)
    assert high - 0.02 == pytest.approx(4.302653 * 0.01 / 3**0.5)  # t of two degrees of freedom, from a table
    assert mean_interval([0.01]) == (-np.inf, np.inf)


def test_the_estimate_is_what_the_interval_belongs_to() -> None:
    """The median of these is 1.0, which lies far from the middle of the mean's interval."""
    ratio = Ratio.of([0.0, 0.0, 0.3])
    assert ratio.estimate == pytest.approx(math.exp(0.1))
    assert math.log(ratio.estimate) == pytest.approx((math.log(ratio.low) + math.log(ratio.high)) / 2)
    assert str(Ratio.of([0.1])) == "1.105 [0.000, inf]"


def test_a_single_look_needs_no_correction_and_more_looks_need_more() -> None:
    levels = [nominal_significance(LOOKS[:n], 0.95) for n in (1, 2, 3, 5)]
    assert levels[0] == pytest.approx(0.05, rel=0.03)
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] > 0.05 / 5, "less strict than Bonferroni's correction: looks at one race are related"
    assert Stopping(candidates=3).significance < STOPPING.significance / 2.5


def test_looks_end_with_the_last_round() -> None:
    assert Stopping(28).looks == LOOKS
    assert (Stopping(12).looks, Stopping(2).looks) == ((6, 10, 12), (2,))


@pytest.mark.parametrize("noise", [QUIET, BUSY], ids=["quiet", "busy"])
def test_what_is_equally_fast_rarely_wins_and_a_gain_of_3_percent_is_found(noise: Noise) -> None:
    rng = np.random.default_rng(1)
    equal, faster = (
        [race_over(noise.rounds(math.log(speedup), STOPPING.rounds, rng), STOPPING) for _ in range(RACES)]
        for speedup in (1.0, 1.03)
    )
    assert np.mean([STOPPING.won(logs) for logs in equal]) <= 0.01 + 3 * (0.01 / RACES) ** 0.5
    assert np.mean([STOPPING.won(logs) for logs in faster]) >= 0.98
    assert np.mean(list(map(len, faster))) < LOOKS[1]


def test_the_best_of_several_equals_rarely_wins_either() -> None:
    rng, several = np.random.default_rng(2), Stopping(candidates=3)
    races = [[QUIET.rounds(0.0, several.rounds, rng) for _ in range(3)] for _ in range(500)]
    won = [any(several.won(race_over(logs, several)) for logs in one) for one in races]
    assert np.mean(won) <= 0.01 + 3 * (0.01 / len(races)) ** 0.5


def test_without_the_correction_equals_would_win_too_often() -> None:
    rng = np.random.default_rng(3)
    races = [QUIET.rounds(0.0, STOPPING.rounds, rng) for _ in range(RACES)]
    assert np.mean([any(mean_interval(x[:n])[0] > 0 for n in LOOKS) for x in races]) > 0.05


def test_a_ratio_that_is_another_in_other_minutes_is_certified_as_it_is_now() -> None:
    """Which is why a result says over how long its rounds were spread."""
    rng, minutes = np.random.default_rng(4), Noise(layout=0.005, lap=0.01, drift=0.005, memory=100.0)
    ended = [race_over(minutes.rounds(0.0, STOPPING.rounds, rng), STOPPING) for _ in range(500)]
    assert np.mean([STOPPING.won(logs) for logs in ended]) > 0.1


def test_a_gain_worth_having_is_seldom_given_up_and_a_loss_soon() -> None:
    rng = np.random.default_rng(5)
    gained, lost = (
        [race_over(QUIET.rounds(speedup, STOPPING.rounds, rng), STOPPING) for _ in range(500)]
        for speedup in (0.01, -0.03)
    )
    assert np.mean([STOPPING.won(logs) for logs in gained]) > 0.95
    assert np.mean(list(map(len, lost))) < LOOKS[0]
