"""When a race is decided: takes its ratios round by round, gives an interval that holds however often one looks.

A group sequential test in the manner of Pocock (Biometrika 64, 1977): every look has the same nominal significance,
so small that all looks together err as seldom as they say. The intervals are the repeated confidence intervals of
Jennison and Turnbull (Journal of the Royal Statistical Society B 51, 1989). A candidate that is not worth more rounds
is given up by a rule of its own, which does not bind: ignoring it leaves the rate of false alarms as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

LEVEL = 0.95
FIRST_LOOK = 2
"""One round alone tells nothing of how rounds differ."""
RACES = 100_000
"""Simulated for the nominal significance, whose standard error is then under 2 % of itself."""


def mean_interval(logs: Sequence[float], significance: float = 1.0 - LEVEL) -> tuple[float, float]:
    """Student's interval of the mean, at one look of ``significance``; the whole line for a single value."""
    mean, error = float(np.mean(logs)), _standard_error(logs)
    if not np.isfinite(error):
        return -np.inf, np.inf
    reach = float(stdtrit(len(logs) - 1, 1.0 - significance / 2)) * error
    return mean - reach, mean + reach


@functools.cache
def nominal_significance(rounds: int, level: float = LEVEL) -> float:
    """Significance of each look at a race that is looked at after its second and every later of ``rounds`` rounds.

    Student's t after each round depends on nothing but chance where both sides are the same and rounds are normal,
    so its smallest significance over a race is found by simulating races. (Tables hold it for known variances only.)
    """
    looks = np.arange(FIRST_LOOK, rounds + 1)
    values = np.random.default_rng(0).standard_normal((RACES, rounds))
    sums, squares = np.cumsum(values, 1)[:, looks - 1], np.cumsum(values**2, 1)[:, looks - 1]
    t = sums / np.sqrt((squares - sums**2 / looks) * looks / (looks - 1))
    return float(np.quantile((2 * stdtr(looks - 1, -np.abs(t))).min(axis=1), 1.0 - level))


@dataclass(frozen=True)
class Stopping:
    """When a race of at most ``rounds`` rounds between a candidate and a rival is over.

    Values are logarithms of how many times as fast as the rival the candidate was, one a round.
    """

    rounds: int
    worth: float = 0.005
    """A candidate that is faster by no more than this share is not worth more rounds."""
    missed: float = 0.1
    """Chance, at one look, that a candidate is given up that is worth that much."""

    @property
    def significance(self) -> float:
        """Of a single look; see :func:`mean_interval`."""
        return nominal_significance(self.rounds)

    def won(self, logs: Sequence[float]) -> bool:
        """The candidate is faster, whenever one asks."""
        return mean_interval(logs, self.significance)[0] > 0.0

    def given_up(self, logs: Sequence[float]) -> bool:
        """It is not likely any more that the candidate is faster by more than ``worth``."""
        return mean_interval(logs, 2 * self.missed)[1] < math.log1p(self.worth)


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf
