"""Simulated target drawn from a fitted surrogate: a latency for any placement."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from collage_evo.genome.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.search.surrogate.features import FeatureMap

LEAST = 0.3
"""Minimum latency of a placement as a share of the additive model's, for any draw of the weights."""


@dataclass(frozen=True)
class LearnedTarget:
    """A sample of the surrogate's weights: the same placement always has the same latency."""

    features: FeatureMap
    weights: np.ndarray

    def latency_ms(self, placement: Placement) -> float:
        """Latency in ms."""
        vector = self.features.vector(placement)
        return max(vector.corrected(self.weights), LEAST * vector.predicted)

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        """One outcome a placement, in order."""
        return [Outcome(self.latency_ms(placement), n=1) for placement in placements]
