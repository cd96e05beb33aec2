"""Intervals of measurements on few samples: the bootstrap, and the exact interval of a count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

LEVEL = 0.95
RESAMPLES = 2000
Interval = tuple[float, float]


def bootstrap_interval(
    statistic: Callable[[np.ndarray], np.ndarray],
    count: int,
    seed: int = 0,
    resamples: int = RESAMPLES,
    least: int = 1,
) -> Interval | None:
    """The percentile interval of a statistic of ``count`` samples (Efron, The Annals of Statistics 7, 1979).

    Samples are drawn as wholes, so that values of one stay together: with pairs it is the paired bootstrap.

    Args:
        statistic: maps indices [resamples, count] of samples, drawn with repetition, to its value for each row;
            NaN for a row that it cannot compute.
        least: there is no interval if fewer rows gave a finite value.
    """
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count))
    values = statistic(drawn)
    usable = values[np.isfinite(values)]
    if len(usable) < least:
        return None
    low, high = np.quantile(usable, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def robust_deviation(values: Sequence[float]) -> float:
    """The standard deviation of normal values, from their median deviation: outliers do not inflate it."""
    middle = median(values)  # NumPy's takes ten times as long for a few values
    return 1.4826 * median(abs(one - middle) for one in values)


def median_interval(values: Sequence[float]) -> Interval:
    """The bootstrap interval of the median of finite values."""
    data = np.asarray(values, float)
    interval = bootstrap_interval(lambda drawn: np.median(data[drawn], axis=1), len(data))
    return interval or (float(data.min()), float(data.max()))


def share_interval(count: int, samples: int, level: float = LEVEL) -> Interval:
    """The exact interval of a share, ``count`` of ``samples`` (Clopper and Pearson, Biometrika 26, 1934)."""
    from scipy.stats import binomtest  # half a second, which worker processes rarely need

    interval = binomtest(count, samples).proportion_ci(level, "exact")
    return float(interval.low), float(interval.high)


def net_share_interval(lost: int, won: int, samples: int, level: float = LEVEL) -> Interval:
    """An interval of the share of samples that lost minus the share that won; no sample does both.

    Each end adds up exact bounds of both shares, at half the error each (Bonferroni): it covers at least ``level``.
    """
    half = (1 + level) / 2
    (least_lost, most_lost), (least_won, most_won) = (share_interval(n, samples, half) for n in (lost, won))
    return least_lost - most_won, most_lost - least_won
