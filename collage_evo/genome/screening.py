"""Predicted fitness: takes placements that were measured, gives predictions for those that were not.

As in Ansor (OSDI 2020) a model corrected after every batch picks which of many candidates are worth measuring.
The additive cost model is split into terms; a ridge regression learns how much each really counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collage_evo.fitness.model import crossings
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement

FEWEST_POINTS = 4
"""Below this many measurements the additive model is used as it is."""

TRUST = 0.5
"""Weight of the additive model, in measurements that would agree with it."""


def features(placement: Placement, space: SearchSpace) -> np.ndarray:
    """For each engine: ms of its matches, ms of crossing its border, how many regions it has; float64."""
    index = {engine: position for position, engine in enumerate(space.engines)}
    terms = np.zeros((3, len(index)))
    for region in placement.regions:
        column = index[region.engine]
        terms[0, column] += sum(space.cost.match_ms[match] for match in region.matches)
        terms[2, column] += 1
    for nbytes, source, target in crossings(space.flows, placement):
        for side in (source, target):
            if side is not None:
                terms[1, index[side.engine]] += space.cost.side_ms(side.engine, nbytes)
    return terms.ravel()


class Correction:
    """Latency as a weighted sum of :func:`features`: weights 1, 1, 0 by the additive model, then as measured."""

    def __init__(self, rows: Sequence[np.ndarray], latency_ms: Sequence[float], engines: int) -> None:
        self.weights = np.concatenate([np.ones(2 * engines), np.zeros(engines)])
        if len(latency_ms) >= FEWEST_POINTS:
            self._fit(np.asarray(rows), np.asarray(latency_ms))

    def _fit(self, rows: np.ndarray, latency_ms: np.ndarray) -> None:
        # Relative errors count, so that slow placements do not outweigh the fast ones that matter.
        relative = rows / latency_ms[:, None]
        residual = 1.0 - relative @ self.weights
        spread = np.sqrt(np.mean(relative**2, axis=0))
        held = np.diag(np.sqrt(TRUST) * spread + 1e-9)
        left = np.vstack([relative, held])
        right = np.concatenate([residual, np.zeros(len(spread))])
        self.weights = self.weights + np.linalg.lstsq(left, right, rcond=None)[0]

    def predict(self, row: np.ndarray) -> float:
        """Predicted latency in ms."""
        return float(row @ self.weights)
