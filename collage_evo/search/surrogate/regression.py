"""Bayesian linear regression: fits weights of features to the errors of a simple model, and samples them.

The error scale of each kind of feature, and the noise, are chosen by marginal likelihood (Rasmussen and Williams,
2006, chapters 2 and 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

SWEEPS = 2
"""Number of times that each scale is tried larger and smaller."""
MOST_ROWS = 500
"""Placements that a model is fitted to: work grows with the cube of their number. Chosen."""
LEAST_CORRECTED = 0.05
"""Minimum of a corrected value as a share of the prediction: the dynamic program needs costs of zero or more."""


@dataclass(frozen=True)
class Vector:
    """One placement: what the simple model predicts, and columns and values of the features that correct it."""

    predicted: float
    columns: np.ndarray
    values: np.ndarray

    def corrected(self, weights: np.ndarray) -> float:
        """The prediction under ``weights`` of the features."""
        return float(self.predicted + self.values @ weights[self.columns])


def table(rows: Sequence[Vector], totals: Iterable[float], width: int) -> csr_array:
    """``rows``, each as shares of its whole."""
    none = np.zeros(0)
    columns = np.concatenate([none.astype(int), *(row.columns for row in rows)])
    values = np.concatenate([none, *(row.values / whole for row, whole in zip(rows, totals, strict=True))])
    return csr_array((values, columns, np.cumsum([0, *(len(row.columns) for row in rows)])), shape=(len(rows), width))


class Regression:
    """Fitted to ``gap``: for each row the relative error of the simple model; without any rows, the prior.

    ``prior`` contains the prior standard deviation of each kind's weights, then that of the noise; ``group_of`` maps
    each column to its kind, and ``astray`` each row to its additional noise. ``mean`` contains the most likely weight
    of every feature.
    """

    def __init__(
        self, rows: csr_array, gap: np.ndarray, group_of: np.ndarray, prior: np.ndarray, astray: np.ndarray
    ) -> None:
        self._rows, self._gap, self._group_of, self._prior, self._astray = rows, gap, group_of, prior, astray
        self._grams = np.stack([self._gram(group) for group in range(len(prior) - 1)])
        scales = self._fit_scales() if len(gap) else prior
        self._spread, self._noise = scales[:-1][group_of], float(scales[-1])
        self._factor = cho_factor(self._kernel(scales)) if len(gap) else None
        self.mean = self._posterior(np.zeros(len(group_of)), np.zeros(len(gap)))

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Weights drawn from the posterior (Matheron's rule)."""
        weights = self._spread * random.standard_normal(len(self._group_of))
        spread = np.hypot(self._noise, self._astray)
        return self._posterior(weights, spread * random.standard_normal(len(self._gap)))

    def _posterior(self, weights: np.ndarray, noise: np.ndarray) -> np.ndarray:
        if self._factor is None:
            return weights
        missed = cho_solve(self._factor, self._gap - self._rows @ weights - noise)
        return np.asarray(weights + self._spread**2 * (self._rows.T @ missed))

    def _gram(self, group: int) -> np.ndarray:
        part = self._rows[:, np.flatnonzero(self._group_of == group)]
        return np.asarray((part @ part.T).toarray())

    def _kernel(self, scales: np.ndarray) -> np.ndarray:
        """Covariance of the relative errors under ``scales``: one for each kind of feature, then the noise."""
        explained = np.einsum("g,gij->ij", scales[:-1] ** 2, self._grams)
        return np.asarray(explained + np.diag(scales[-1] ** 2 + self._astray**2))

    def _fit_scales(self) -> np.ndarray:
        """Coordinate ascent on the marginal likelihood, a factor of three up or down at a time."""
        best = self._prior
        score = self._evidence(best)
        for index in [*range(len(best))] * SWEEPS:
            for step in (1 / 3, 3.0):
                tried = best.copy()
                tried[index] *= step
                evidence = self._evidence(tried)
                if evidence > score:
                    best, score = tried, evidence
        return best

    def _evidence(self, scales: np.ndarray) -> float:
        factor = cho_factor(self._kernel(scales))
        fit = self._gap @ cho_solve(factor, self._gap)
        # A weak pull towards the prior keeps scales in range while there are few measurements.
        pull = np.sum(np.log(scales / self._prior) ** 2)
        return float(-0.5 * fit - np.log(np.diag(factor[0])).sum() - 0.25 * pull)

