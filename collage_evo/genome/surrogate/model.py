"""A cost model that learns: takes measured placements, gives predictions, and samples of what may be true.

As in Ansor (OSDI 2020) a model fitted after every batch picks which of many candidates are worth measuring. Here it
is Bayesian linear regression on the features of a placement, with the additive model as its prior mean; how far each
kind of feature may be off is chosen by marginal likelihood (Rasmussen and Williams, 2006, chapters 2 and 5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from collage_evo.genome.surrogate.features import GROUPS, FeatureMap, FeatureVector
from collage_evo.runtime.timing import DISTURBED

PRIOR = dict(zip(GROUPS, (0.15, 0.3, 0.1, 0.02, 0.2, 0.2, 0.02), strict=True))
"""Standard deviation of each kind's weights before anything is known."""

NOISE = 0.01
"""The same for one measurement, relative to its latency."""
ASTRAY = DISTURBED
"""How far a disturbed time may be from the true one besides, relative to it: others had that share of the cores'
time, or more. It is not fitted, since most searches have few such times."""

STEPS = (1 / 3, 3.0)
SWEEPS = 2
MOST_ROWS = 500
"""Fitted to the fastest so many; the work grows with the cube of their number."""


class Surrogate:
    """Fitted to ``rows`` with latencies in ms; without any it is the additive model, uncertain by the prior.

    ``disturbed`` says of each latency whether others were at work on the same cores: such a one counts less. None is
    where it is empty. ``mean`` holds the most likely weight of every feature.
    """

    def __init__(
        self,
        features: FeatureMap,
        rows: Sequence[FeatureVector],
        latency_ms: Sequence[float],
        disturbed: Sequence[bool] = (),
    ) -> None:
        self._features = features
        fastest = sorted(sorted(range(len(rows)), key=latency_ms.__getitem__)[:MOST_ROWS])
        used = [rows[index] for index in fastest]
        # Relative errors count, so that slow placements do not outweigh the fast ones that matter.
        latency = np.array([latency_ms[index] for index in fastest])
        self._rows = _table(used, latency, features.width)
        self._gap = 1.0 - np.array([row.additive_ms for row in used]) / latency
        self._astray = np.array([ASTRAY if disturbed and disturbed[index] else 0.0 for index in fastest])
        self._grams = np.stack([self._gram(group) for group in range(len(GROUPS))])
        scales = self._fit_scales() if used else np.array([*PRIOR.values(), NOISE])
        self._spread, self._noise = scales[:-1][features.group_of], float(scales[-1])
        self._factor = cho_factor(self._kernel(scales)) if used else None
        self.mean = self._posterior(np.zeros(features.width), np.zeros(len(used)))

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Weights drawn from what the measurements leave possible (Matheron's rule)."""
        weights = self._spread * random.standard_normal(self._features.width)
        spread = np.hypot(self._noise, self._astray)
        return self._posterior(weights, spread * random.standard_normal(len(self._gap)))

    def _posterior(self, weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
        if self._factor is None:
            return weights
        missed = cho_solve(self._factor, self._gap - self._rows @ weights - noise)
        return np.asarray(weights + self._spread**2 * (self._rows.T @ missed))

    def _gram(self, group: int) -> np.ndarray:
        part = self._rows[:, np.flatnonzero(self._features.group_of == group)]
        return np.asarray((part @ part.T).toarray())

    def _kernel(self, scales: np.ndarray) -> np.ndarray:
        """Covariance of the relative errors under ``scales``: one for each kind of feature, then the noise."""
        known = np.einsum("g,gij->ij", scales[:-1] ** 2, self._grams)
        return np.asarray(known + np.diag(scales[-1] ** 2 + self._astray**2))

    def _fit_scales(self) -> np.ndarray:
        """Coordinate ascent on the marginal likelihood, a factor of three up or down at a time."""
        best = np.array([*PRIOR.values(), NOISE])
        score = self._evidence(best)
        for index in [*range(len(best))] * SWEEPS:
            for step in STEPS:
                tried = best.copy()
                tried[index] *= step
                found = self._evidence(tried)
                if found > score:
                    best, score = tried, found
        return best

    def _evidence(self, scales: np.ndarray) -> float:
        factor = cho_factor(self._kernel(scales))
        fit = self._gap @ cho_solve(factor, self._gap)
        # A weak pull towards the prior keeps scales in range while there are few measurements.
        pull = np.sum(np.log(scales / np.array([*PRIOR.values(), NOISE])) ** 2)
        return float(-0.5 * fit - np.log(np.diag(factor[0])).sum() - 0.25 * pull)


def _table(rows: Sequence[FeatureVector], latency_ms: np.ndarray, width: int) -> csr_array:
    """One row a placement, each feature as a share of its latency."""
    values = [row.values / ms for row, ms in zip(rows, latency_ms, strict=True)]
    starts = np.cumsum([0, *(len(row.columns) for row in rows)])
    none = np.zeros(0)
    columns = np.concatenate([none.astype(int), *(row.columns for row in rows)])
    return csr_array((np.concatenate([none, *values]), columns, starts), shape=(len(rows), width))


def predicted_ms(row: FeatureVector, weights: np.ndarray) -> float:
    """Latency of a placement in ms under ``weights``."""
    return float(row.additive_ms + row.values @ weights[row.columns])
