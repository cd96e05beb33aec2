"""A race that may end after any look errs no more often than it says, and ends early where it can."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage_evo.answer.sequential import FEWEST, LOOKS, Ratio, Stopping, mean_interval, nominal_significance
from tests.support.races import Noise, logs_of, race_over, wins

RACES = 600
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
    levels = [nominal_significance(LOOKS[:n], 0.95) for n in (1, 2, 3, 6)]
    assert levels[0] == pytest.approx(0.05, rel=0.05)
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] > 0.05 / 6, "less strict than Bonferroni's correction: looks at one race are related"
    assert Stopping(candidates=3).significance < STOPPING.significance / 2.5


def test_looks_end_with_the_last_round() -> None:
    assert Stopping(28).looks == LOOKS
    assert (Stopping(12).looks, Stopping(2).looks) == ((3, 6, 10, 12), (2,))


@pytest.mark.parametrize("noise", [QUIET, BUSY], ids=["quiet", "busy"])
def test_what_is_equally_fast_rarely_wins_and_a_gain_of_3_percent_is_found(noise: Noise) -> None:
    rng = np.random.default_rng(1)
    equal, faster = (
        [race_over(noise.race(math.log(speedup), STOPPING.rounds, rng), STOPPING) for _ in range(RACES)]
        for speedup in (1.0, 1.03)
    )
    assert np.mean([wins(laps, STOPPING) for laps in equal]) <= 0.01 + 3 * (0.01 / RACES) ** 0.5
    assert np.mean([wins(laps, STOPPING) for laps in faster]) >= 0.98
    assert np.mean(list(map(len, faster))) < LOOKS[2]


@pytest.mark.parametrize("noise", [QUIET, BUSY], ids=["quiet", "busy"])
def test_a_gain_that_is_obvious_is_found_in_the_fewest_rounds_of_a_slow_model(noise: Noise) -> None:
    """Of a model of a second: three rounds of two laps."""
    rng = np.random.default_rng(6)
    few = Stopping(candidates=2)
    races = [noise.race(math.log(1.7), FEWEST, rng, laps=2) for _ in range(RACES)]
    found = np.mean([wins(laps, few) for laps in races])
    assert found >= (0.99 if noise is QUIET else 0.7)
    assert found > np.mean([few.won(logs_of(laps)) for laps in races]), "than by the rounds' own variance"
    equal = [noise.race(0.0, FEWEST, rng, laps=2) for _ in range(RACES)]
    assert np.mean([wins(laps, few) for laps in equal]) <= 0.01


def test_a_ratio_that_shifts_between_rounds_by_more_than_laps_tell_seldom_wins() -> None:
    rng, gusts = np.random.default_rng(7), Noise(layout=0.005, lap=0.01, drift=0.05, memory=0.3)
    races = [race_over(gusts.race(0.0, 12, rng, laps=4), Stopping(12)) for _ in range(RACES)]
    assert np.mean([wins(laps, Stopping(12)) for laps in races]) <= 0.06


def test_the_best_of_several_equals_rarely_wins_either() -> None:
    rng, several = np.random.default_rng(2), Stopping(candidates=3)
    races = [[QUIET.race(0.0, several.rounds, rng) for _ in range(3)] for _ in range(500)]
    won = [any(wins(race_over(laps, several), several) for laps in one) for one in races]
    assert np.mean(won) <= 0.01 + 3 * (0.01 / len(races)) ** 0.5


def test_a_gain_worth_having_is_seldom_given_up_and_a_loss_soon() -> None:
    rng = np.random.default_rng(5)
    gained, lost = (
        [race_over(QUIET.race(speedup, STOPPING.rounds, rng), STOPPING) for _ in range(500)]
        for speedup in (0.01, -0.03)
    )
    assert np.mean([wins(laps, STOPPING) for laps in gained]) > 0.95
    assert np.mean(list(map(len, lost))) < LOOKS[1]
