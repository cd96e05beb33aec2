"""What one place in a batch is after: the fastest placement, or the fastest within bounds on other objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from collage_evo.search.surrogate.features import FeatureVector
from collage_evo.search.surrogate.model import predicted_ms
from collage_evo.search.surrogate.terms import TermModel, TermVector

Standing = tuple[float, ...]
"""How far each objective but latency is over its bound, then latency in ms: the less the better."""


def violation(values: Sequence[float], bounds: Sequence[float]) -> Standing:
    """Of latency and the other objectives' values, with a bound on each of these.

    What keeps the bounds comes before what breaks one (Deb, 2000); among the former the fastest is best.
    """
    ms, *others = values
    return (*(max(0.0, value - bound) for value, bound in zip(others, bounds, strict=True)), ms)


@dataclass(frozen=True)
class Term:
    """What ``model`` with ``weights`` says of an objective, and the largest value of it that is wanted."""

    model: TermModel
    weights: np.ndarray
    bound: float


@dataclass(frozen=True)
class Acquisition:
    """The fastest that keeps the bounds of ``terms``, if these and ``weights`` of the features of latency are right.

    ``dearer`` is how many times the price at a bound is asked in the covers that are proposed.
    """

    weights: np.ndarray
    terms: tuple[Term, ...] = ()
    penalty: float = 1.0

    def violation(self, features: FeatureVector, added: Sequence[TermVector]) -> Standing:
        """Predicted; candidates are compared by it."""
        others = (term.model.value(row, term.weights) for term, row in zip(self.terms, added, strict=True))
        return self.measured((predicted_ms(features, self.weights), *others))

    def measured(self, values: Sequence[float]) -> Standing:
        """The same of what was measured."""
        return violation(values, [term.bound for term in self.terms])

    def multiplier(self, front: Sequence[Sequence[float]]) -> np.ndarray | None:
        """What all that a match adds is worth to this place in ms, where ``front`` was measured; None is nothing."""
        multiplier = None
        for place, term in enumerate(self.terms, start=1):
            amount = term.model.objective.amount
            slope = slope_at([(values[0], amount(values[place])) for values in front], amount(term.bound))
            worth = self.penalty * slope * term.model.by_match(term.weights)
            multiplier = worth if multiplier is None else multiplier + worth
        return multiplier


def slope_at(points: Sequence[tuple[float, float]], most: float) -> float:
    """ms for each unit that is added which the lower hull of (ms, added) trades at ``most``."""
    within_bound = [point for point in points if point[1] <= most]
    over = [point for point in points if point[1] > most and within_bound and point[0] < min(within_bound)[0]]
    if not over:
        return 0.0

    def ms_there(pair: tuple[tuple[float, float], tuple[float, float]]) -> float:
        fast, slow = pair
        return fast[0] + (slow[0] - fast[0]) * (fast[1] - most) / (fast[1] - slow[1])

    fast, slow = min(product(over, within_bound), key=ms_there)
    return (slow[0] - fast[0]) / (fast[1] - slow[1])
