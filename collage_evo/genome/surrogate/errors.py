"""An error model that learns: takes measured errors of placements, gives predictions and samples of the truth.

Squared errors of parts add up. What each match is said to add is corrected by regression: one factor for all, one for
each engine, one for each node on each engine. It ranks what to measure; whether a placement keeps its budget is
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from collage_evo.fitness.costs.model import bordering
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.surrogate.regression import Regression
from collage_evo.graph.ir import members
from collage_evo.patterns.match import Placement

PRIOR = (0.3, 0.4)
"""Standard deviation of the weights of engines, and of nodes, before anything is known."""

NOISE = 0.05
"""The same for what parts do to each other, relative to the squared error."""

LEAST = 0.05
"""No corrected squared error falls below this share of what was said."""

MOST_ROWS = 500
"""Fitted to the latest so many."""


@dataclass(frozen=True)
class ErrorVector:
    """One placement: what its matches are said to add to the squared relative error, in all and by column."""

    said: float
    columns: np.ndarray
    values: np.ndarray


class ErrorMap:
    """From placements of one search space to error vectors; columns are engines, then engines at each node."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        engines, nodes = len(space.engines), len(space.graph.nodes)
        self._engine = {engine: index for index, engine in enumerate(space.engines)}
        self.group_of = np.repeat(np.arange(2), (engines, engines * nodes))

    @cached_property
    def _parts(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Columns and values of each usable match that adds an error."""
        found = {}
        for match in self.space.usable:
            if self.space.error2[match] > 0:
                engine = self._engine[bordering(self.space.matches[match].engine)]
                nodes = np.array([*members(self.space.matches[match].nodes)])
                columns = np.concatenate([[engine], (nodes + 1) * len(self._engine) + engine])
                share = self.space.error2[match] / len(nodes)
                found[match] = (columns, np.concatenate([[self.space.error2[match]], np.full(len(nodes), share)]))
        return found

    def vector(self, placement: Placement) -> ErrorVector:
        """What ``placement`` is made of."""
        used = [match for region in placement.regions for match in region.matches if match in self._parts]
        said = sum(self.space.error2[match] for match in used)
        none = np.zeros(0)
        columns = np.concatenate([none.astype(int), *(self._parts[match][0] for match in used)])
        return ErrorVector(said, columns, np.concatenate([none, *(self._parts[match][1] for match in used)]))

    def by_match(self, weights: np.ndarray) -> np.ndarray:
        """For each match what it adds to the squared error under ``weights``, but for the factor of all."""
        said = np.array(self.space.error2)
        corrected = said.copy()
        for match, (columns, values) in self._parts.items():
            corrected[match] += values @ weights[columns]
        return np.asarray(np.maximum(corrected, LEAST * said))


class ErrorModel(Regression):
    """Fitted to ``rows`` with measured errors, relative or drops of a metric; those below zero count as none.

    ``scale`` is the factor of all: how many times the said squared errors are what is measured, in the median.
    """

    def __init__(self, features: ErrorMap, rows: Sequence[ErrorVector], errors: Sequence[float]) -> None:
        known = [(row, max(0.0, error) ** 2) for row, error in zip(rows, errors, strict=True) if row.said > 0]
        known = known[-MOST_ROWS:]
        ratios = [error2 / row.said for row, error2 in known if error2 > 0]
        self.features = features
        self.scale = float(np.median(ratios)) if ratios else 1.0
        gap = np.array([error2 / (row.said * self.scale) - 1.0 for row, error2 in known])
        starts = np.cumsum([0, *(len(row.columns) for row, _ in known)])
        none = np.zeros(0)
        columns = np.concatenate([none.astype(int), *(row.columns for row, _ in known)])
        shares = np.concatenate([none, *(row.values / row.said for row, _ in known)])
        table = csr_array((shares, columns, starts), shape=(len(known), len(features.group_of)))
        super().__init__(table, gap, features.group_of, np.array([*PRIOR, NOISE]), np.zeros(len(known)))

    def error2(self, row: ErrorVector, weights: np.ndarray) -> float:
        """Squared error of a placement under ``weights``."""
        corrected = row.said + float(row.values @ weights[row.columns])
        return self.scale * max(LEAST * row.said, corrected)

    def by_match(self, weights: np.ndarray) -> np.ndarray:
        """What each match adds to the squared error under ``weights``."""
        return self.scale * self.features.by_match(weights)
