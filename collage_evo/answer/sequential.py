"""Group sequential test of a race: intervals of a ratio that hold for any number of looks.

A group sequential test in the manner of Pocock (Biometrika 64, 1977): every look has the same nominal significance,
so small that all looks together have the stated error rate. The intervals are the repeated confidence intervals of
Jennison and Turnbull (Journal of the Royal Statistical Society B 51, 1989). A candidate that is not worth more rounds
is given up by a rule of its own, which does not bind: ignoring it leaves the rate of false alarms as it is.

Three rounds estimate their own variance badly: Student's t with two degrees of freedom needs ten standard errors. So
the variance is moderated (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004): that of the
rounds is pooled with one expected from repeats inside the rounds and from the known effect of a model's place in
memory, which counts as much as ``PRIOR`` degrees of freedom (``2d0817f2:benchmarks/stopping.py`` compares weights).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.statistics import LEVEL

LOOKS = (3, 6, 10, 16, 22, 28)
"""Rounds after which a race may be won."""
PRIOR = 2
"""Degrees of freedom of the expected variance. With 4 a ratio that shifts between rounds wins 5 % of races of equals.
Without any, a candidate 1.7 times as fast needs six rounds, and of those 1.1 times as fast 82 % win in four rounds
instead of 94 % (simulated: repeats with 1 % of noise, two a round)."""
MISSED = 0.02
"""Chance, at each look, that a contestant is given up that is faster by as much as is worth more rounds. Chosen."""
FEWEST = 3
"""Rounds before a contestant is given up, and minimum of every race, whatever time they take."""
RACES = 100_000
"""Simulated races for the nominal significance, whose standard error is then under 2 % of itself."""


def mean_interval(
    logs: Sequence[float], significance: float = 1.0 - LEVEL, expected: float | None = None, shared: float = 0.0
) -> tuple[float, float]:
    """Student's interval of the mean, at one look of ``significance``; the whole line for a single value.

    Args:
        logs: logarithms of a ratio, one a round.
        significance: of the look.
        expected: the variance that a round is expected to have; with None the rounds are the only estimate.
        shared: known variance of what shifts all rounds alike, which more rounds do not reduce.
    """
    if len(logs) < 2:
        return -math.inf, math.inf
    freedom, prior = len(logs) - 1, 0 if expected is None else PRIOR
    variance = (freedom * float(np.var(logs, ddof=1)) + prior * (expected or 0.0)) / (freedom + prior)
    reach = float(stdtrit(freedom + prior, 1.0 - significance / 2)) * math.sqrt(variance / len(logs))
    reach = math.hypot(reach, float(ndtri(1.0 - significance / 2)) * math.sqrt(shared))
    mean = float(np.mean(logs))
    return mean - reach, mean + reach


@dataclass(frozen=True)
class Ratio:
    """A speed-up: the geometric mean over rounds, Student's interval of it, and the rounds' ratios."""

    estimate: float
    low: float
    high: float
    rounds: tuple[float, ...]

    @classmethod
    def of(
        cls,
        logs: Sequence[float],
        significance: float = 1.0 - LEVEL,
        expected: float | None = None,
        shared: float = 0.0,
    ) -> Ratio:
        """Computed from the logarithms of the rounds' ratios; the other arguments as in :func:`mean_interval`."""
        low, high = mean_interval(logs, significance, expected, shared)
        high = math.exp(high) if high < math.inf else math.inf
        return cls(math.exp(float(np.mean(logs))), math.exp(low), high, tuple(map(math.exp, logs)))

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


@functools.cache
def nominal_significance(looks: tuple[int, ...], level: float) -> float:
    """Significance of each of several ``looks``, which are numbers of rounds, at a race of equals.

    If both sides are equal, rounds are normal and their variance is distributed about the expected one by the prior,
    the moderated t after each round depends on chance only. So its smallest significance over a race is found by
    simulating races. (Tables hold it for known variances only.)
    """
    at, rng = np.array(looks), np.random.default_rng(0)
    values = rng.standard_normal((RACES, looks[-1])) * np.sqrt(PRIOR / rng.chisquare(PRIOR, (RACES, 1)))
    sums, squares = np.cumsum(values, 1)[:, at - 1], np.cumsum(values**2, 1)[:, at - 1]
    freedom = PRIOR + at - 1
    t = sums / np.sqrt((PRIOR + squares - sums**2 / at) / freedom * at)
    return float(np.quantile((2 * stdtr(freedom, -np.abs(t))).min(axis=1), 1.0 - level))


@dataclass(frozen=True)
class Stopping:
    """Stopping rules of a race of at most ``rounds`` rounds between ``candidates`` and a rival.

    Values are logarithms of the speed-up of a candidate over the rival, one a round. With several candidates each
    test is stricter by their number (Bonferroni), so that all of them together err as rarely as one.
    """

    rounds: int = LOOKS[-1]
    candidates: int = 1
    policy: Policy = DEFAULT_POLICY
    """The confidence that a win needs, and the threshold at which a candidate is not worth more rounds."""

    @property
    def looks(self) -> tuple[int, ...]:
        """Rounds after which a race may be won; if time is over earlier, that look replaces the next one."""
        return (*(look for look in LOOKS if look < self.rounds), self.rounds)

    @property
    def significance(self) -> float:
        """Significance of a single look; see :func:`mean_interval`."""
        return nominal_significance(self.looks, 1.0 - (1.0 - self.policy.race_level) / self.candidates)

    def won(self, logs: Sequence[float], expected: float | None = None, shared: float = 0.0) -> bool:
        """Whether the candidate is faster, at a look; ``expected`` and ``shared`` as in :func:`mean_interval`."""
        return mean_interval(logs, self.significance, expected, shared)[0] > 0.0

    def given_up(self, logs: Sequence[float], expected: float | None = None, shared: float = 0.0) -> bool:
        """Whether the candidate is unlikely to be faster by a margin that is worth more rounds."""
        most = math.log1p(self.policy.race_worth)
        return len(logs) >= FEWEST and mean_interval(logs, 2 * MISSED, expected, shared)[1] < most
