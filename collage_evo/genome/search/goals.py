"""What one place in a batch is after: the fastest placement, or the fastest within a budget of error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from collage_evo.genome.surrogate.errors import ErrorModel, ErrorVector
from collage_evo.genome.surrogate.features import FeatureVector
from collage_evo.genome.surrogate.model import predicted_ms

Standing = tuple[float, float]
"""How much the squared error is over that of the budget, then latency in ms: the less the better."""


def standing(ms: float, error2: float, budget: float) -> Standing:
    """What keeps the budget comes before what breaks it (Deb, 2000); among the former the fastest is best."""
    return (max(0.0, error2 - budget**2), ms)


@dataclass(frozen=True)
class Goal:
    """``weights`` of the features of latency are what this place believes in."""

    weights: np.ndarray

    def standing(self, features: FeatureVector, errors: ErrorVector | None) -> Standing:
        """Predicted; candidates are compared by it."""
        return (0.0, predicted_ms(features, self.weights))

    def measured(self, values: Sequence[float]) -> Standing:
        """The same of what was measured, given the values of its objectives."""
        return (0.0, values[0])

    def price(self, front: Sequence[Sequence[float]]) -> np.ndarray | None:
        """What each match's error is worth to this place in ms, where ``front`` was measured; None is nothing."""
        return None


@dataclass(frozen=True)
class BudgetGoal(Goal):
    """The fastest within ``budget`` (a relative error) where ``model`` with ``error_weights`` predicts errors.

    ``dearer`` is how many times the price at the budget an error costs in the covers that are proposed.
    """

    model: ErrorModel
    error_weights: np.ndarray
    budget: float
    dearer: float = 1.0

    def standing(self, features: FeatureVector, errors: ErrorVector | None) -> Standing:
        assert errors is not None
        ms = predicted_ms(features, self.weights)
        return standing(ms, self.model.error2(errors, self.error_weights), self.budget)

    def measured(self, values: Sequence[float]) -> Standing:
        return standing(values[0], max(0.0, values[1]) ** 2, self.budget)

    def price(self, front: Sequence[Sequence[float]]) -> np.ndarray | None:
        slope = slope_at([(ms, max(0.0, error) ** 2) for ms, error in front], self.budget**2)
        return self.dearer * slope * self.model.by_match(self.error_weights)


def slope_at(points: Sequence[tuple[float, float]], error2: float) -> float:
    """ms for each unit of squared error that the lower hull of (ms, squared error) trades at ``error2``."""
    kept = [point for point in points if point[1] <= error2]
    over = [point for point in points if point[1] > error2 and kept and point[0] < min(kept)[0]]
    if not over:
        return 0.0

    def ms_there(pair: tuple[tuple[float, float], tuple[float, float]]) -> float:
        fast, slow = pair
        return fast[0] + (slow[0] - fast[0]) * (fast[1] - error2) / (fast[1] - slow[1])

    fast, slow = min(product(over, kept), key=ms_there)
    return (slow[0] - fast[0]) / (fast[1] - slow[1])


