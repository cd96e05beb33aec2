"""A race that may end after any round errs no more often than it says, and ends early where it can."""

from __future__ import annotations

import numpy as np
import pytest

from collage_evo.fitness.final.sequential import FIRST_LOOK, Stopping, mean_interval, nominal_significance
from tests.support.races import Noise, race_over

ROUNDS, RACES = 8, 3000
QUIET = Noise(process=0.003, turn=0.005)
BUSY = Noise(process=0.003, turn=0.02, hit=0.15, hard=10.0)


def test_an_interval_at_one_look_is_students() -> None:
    low, high = mean_interval([0.01, 0.03, 0.02])
    assert (low + high) / 2 == pytest.approx(0.02)
    assert high - 0.02 == pytest.approx(4.302653 * 0.01 / 3**0.5)  # t of two degrees of freedom, from a table
    assert mean_interval([0.01]) == (-np.inf, np.inf)


def test_a_single_look_needs_no_correction_and_more_looks_need_more() -> None:
    levels = [nominal_significance(rounds) for rounds in (FIRST_LOOK, 3, 5, 10)]
    assert levels[0] == pytest.approx(0.05, rel=0.03)
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] > 0.05 / (10 - 1), "less strict than Bonferroni's correction: looks at one race are related"


@pytest.mark.parametrize("noise", [QUIET, BUSY], ids=["quiet", "busy"])
def test_what_is_equally_fast_rarely_wins_although_every_round_is_looked_at(noise: Noise) -> None:
    rng = np.random.default_rng(1)
    stopping = Stopping(ROUNDS)
    ended = [race_over(noise.rounds(0.0, ROUNDS, rng), stopping) for _ in range(RACES)]
    false_alarms = np.mean([stopping.won(logs) for logs in ended])
    held = np.mean([low <= 0.0 <= high for low, high in (mean_interval(x, stopping.significance) for x in ended)])
    assert false_alarms <= 0.025 + 3 * (0.025 / RACES) ** 0.5
    assert held >= 0.95 - 3 * (0.05 / RACES) ** 0.5


def test_without_the_correction_it_would_win_too_often() -> None:
    rng = np.random.default_rng(2)
    races = [QUIET.rounds(0.0, ROUNDS, rng) for _ in range(RACES)]
    peeked = [any(mean_interval(x[:n])[0] > 0 for n in range(FIRST_LOOK, ROUNDS + 1)) for x in races]
    assert np.mean(peeked) > 0.06


def test_clear_races_end_early_and_the_faster_wins() -> None:
    rng = np.random.default_rng(3)
    stopping = Stopping(ROUNDS)
    for speedup, rounds, share in ((0.03, 4.0, 0.98), (-0.03, 2.5, 0.0), (0.0, 5.0, 0.025)):
        ended = [race_over(QUIET.rounds(speedup, ROUNDS, rng), stopping) for _ in range(500)]
        won = np.mean([stopping.won(logs) for logs in ended])
        assert won >= share if speedup > 0 else won <= share + 0.02
        assert np.mean(list(map(len, ended))) < rounds


def test_a_gain_worth_having_is_seldom_given_up() -> None:
    rng = np.random.default_rng(4)
    stopping = Stopping(ROUNDS)
    ended = [race_over(QUIET.rounds(0.01, ROUNDS, rng), stopping) for _ in range(1000)]
    assert np.mean([stopping.won(logs) for logs in ended]) > 0.9
