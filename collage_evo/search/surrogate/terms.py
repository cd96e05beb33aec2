"""Learned model of one objective other than latency: predictions from measured placements, and posterior samples.

Regression corrects the predicted contributions of matches, in the unit in which parts add up: one factor for all, one
for each engine, one for each node on each engine. The model ranks what to measure; only a measurement decides whether
a placement is within its budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from collage_evo.genome.outcome import Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.patterns.match import Placement
from collage_evo.search.surrogate.regression import LEAST_CORRECTED, MOST_ROWS, Regression, Vector, table

TERM_PRIOR = (0.3, 0.4)
"""Prior standard deviation of the weights of engines, and of nodes."""
TERM_NOISE = 0.05
"""Noise of a sum of contributions, a share, from which the fit begins; each search fits its own. Chosen."""


class TermMap:
    """Maps placements of one search space to vectors; columns are engines, then engines at each node."""

    def __init__(self, space: SearchSpace, objective: Objective) -> None:
        self.space, self.objective = space, objective
        self.added = np.array(space.terms.get(objective) or np.zeros(len(space.matches)))
        engines, nodes = len(space.engines), len(space.graph.nodes)
        self.group_of = np.repeat(np.arange(2), (engines, engines * nodes))

    @cached_property
    def parts(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Columns and values of each usable match that adds anything."""
        parts, engines = {}, len(self.space.engines)
        for match in self.space.usable:
            if (added := self.added[match]) > 0:
                engine = self.space.engine_of[match]
                nodes = np.array([*members(self.space.matches[match].nodes)])
                columns = np.concatenate([[engine], (nodes + 1) * engines + engine])
                parts[match] = (columns, np.concatenate([[added], np.full(len(nodes), added / len(nodes))]))
        return parts

    def vector(self, placement: Placement) -> Vector:
        """The vector of ``placement``."""
        used = [match for region in placement.regions for match in region.matches if match in self.parts]
        none = np.zeros(0)
        columns = np.concatenate([none.astype(int), *(self.parts[match][0] for match in used)])
        values = np.concatenate([none, *(self.parts[match][1] for match in used)])
        return Vector(self.space.added(self.objective, used), columns, values)


class TermModel(Regression):
    """Fitted to ``rows`` with measured ``values`` of the objective, such as relative errors or drops of a metric.

    Of more than ``MOST_ROWS``, only the latest are used. ``scale`` is the common factor: the median ratio of measured
    to predicted values.
    """

    def __init__(self, features: TermMap, rows: Sequence[Vector], values: Sequence[float]) -> None:
        self.features, self.objective = features, features.objective
        amounts = map(self.objective.amount, values)
        usable = [(row, amount) for row, amount in zip(rows, amounts, strict=True) if row.predicted > 0]
        usable = usable[-MOST_ROWS :]
        ratios = [amount / row.predicted for row, amount in usable if amount > 0]
        self.scale = float(np.median(ratios)) if ratios else 1.0
        gap = np.array([amount / (row.predicted * self.scale) - 1.0 for row, amount in usable])
        shares = table([row for row, _ in usable], (row.predicted for row, _ in usable), len(features.group_of))
        prior = np.array([*TERM_PRIOR, TERM_NOISE])
        super().__init__(shares, gap, features.group_of, prior, np.zeros(len(usable)))

    def value(self, row: Vector, weights: np.ndarray) -> float:
        """The objective of a placement under ``weights``."""
        amount = max(LEAST_CORRECTED * row.predicted, row.corrected(weights))
        return self.objective.of_amount(self.scale * amount)

    def by_match(self, weights: np.ndarray) -> np.ndarray:
        """Contribution of each match under ``weights``."""
        added = self.features.added
        corrected = added.copy()
        for match, (columns, values) in self.features.parts.items():
            corrected[match] += values @ weights[columns]
        return np.asarray(self.scale * np.maximum(corrected, LEAST_CORRECTED * added))
