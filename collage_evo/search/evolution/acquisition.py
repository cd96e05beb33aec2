"""Acquisition function of one place in a batch: the fastest placement, or the fastest within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from collage_evo.genome.selection import Standing, violation
from collage_evo.search.surrogate.regression import Vector
from collage_evo.search.surrogate.terms import TermModel


@dataclass(frozen=True)
class Term:
    """The belief of ``model`` with ``weights`` about an objective, and the objective's largest accepted value."""

    model: TermModel
    weights: np.ndarray
    bound: float


@dataclass(frozen=True)
class Acquisition:
    """The fastest within the bounds of ``terms``, if these and ``weights`` of the features of latency are right.

    ``penalty`` multiplies the price at a bound in the covers that are proposed.
    """

    weights: np.ndarray
    terms: tuple[Term, ...] = ()
    penalty: float = 1.0

    def violation(self, features: Vector, added: Sequence[Vector]) -> Standing:
        """Predicted violation, by which candidates are compared."""
        others = (term.model.value(row, term.weights) for term, row in zip(self.terms, added, strict=True))
        return self.measured((features.corrected(self.weights), *others))

    def measured(self, values: Sequence[float]) -> Standing:
        """Violation of measured values."""
        return violation(values, [term.bound for term in self.terms])

    def multiplier(self, front: Sequence[Sequence[float]]) -> np.ndarray | None:
        """Price in ms of all that a match adds, for this place, if ``front`` was measured; None is zero."""
        multiplier = None
        for place, term in enumerate(self.terms, start=1):
            amount = term.model.objective.amount
            slope = slope_at([(values[0], amount(values[place])) for values in front], amount(term.bound))
            worth = self.penalty * slope * term.model.by_match(term.weights)
            multiplier = worth if multiplier is None else multiplier + worth
        return multiplier


def slope_at(points: Sequence[tuple[float, float]], most: float) -> float:
    """Trade-off of the lower hull of (ms, added) at ``most``, in ms for each unit that is added."""
    within_bound = [point for point in points if point[1] <= most]
    over = [point for point in points if point[1] > most and within_bound and point[0] < min(within_bound)[0]]
    if not over:
        return 0.0

    def ms_there(pair: tuple[tuple[float, float], tuple[float, float]]) -> float:
        fast, slow = pair
        return fast[0] + (slow[0] - fast[0]) * (fast[1] - most) / (fast[1] - slow[1])

    fast, slow = min(product(over, within_bound), key=ms_there)
    return (slow[0] - fast[0]) / (fast[1] - slow[1])
