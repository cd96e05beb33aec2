"""Correction of predicted errors of a family's mixtures by those that were measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

FARTHEST = 4.0
"""Predicted errors are corrected by this factor at most: one that is farther off has another cause. Chosen."""
APART = 1.1
"""Two predictions give a power if one is so many times the other. Chosen."""
LEAST_POWER, MOST_POWER = 0.5, 2.5
"""Bounds of the power: each measured error is off by itself. Chosen."""


class Erred(NamedTuple):
    """A mixture's predicted and its measured error, both above 0."""

    predicted: float
    measured: float


@dataclass(frozen=True)
class Correction:
    """A family's mixtures err by ``factor * predicted ** power``.

    The power is not 1 where errors of operators depend on each other.
    """

    factor: float = 1.0
    power: float = 1.0

    def measured(self, predicted: float) -> float:
        """The error to expect of a mixture with a ``predicted`` one."""
        return self.factor * float(predicted**self.power)

    def predicted(self, measured: float) -> float:
        """The predicted error of a mixture that is expected to err by ``measured``."""
        return float((measured / self.factor) ** (1.0 / self.power))

    @classmethod
    def of(cls, mixtures: Sequence[Erred], budget: float) -> Correction:
        """Through that of ``mixtures``, at least one, whose error is the nearest to ``budget``, and the next nearest
        that differs enough, if any."""
        nearest, *others = sorted(mixtures, key=lambda one: abs(math.log(one.measured / budget)))
        off = min(max(nearest.measured / nearest.predicted, 1.0 / FARTHEST), FARTHEST)
        power = next((_power(nearest, one) for one in others if _apart(nearest, one)), 1.0)
        if all(one.measured < budget for one in mixtures):
            power = max(power, 1.0)  # beyond what was measured, errors of an encoder grew faster than up to there
        return cls(off * nearest.predicted ** (1.0 - power), power)


UNCORRECTED = Correction()
"""Of a family of which nothing was measured."""


def _apart(one: Erred, other: Erred) -> bool:
    return max(one.predicted, other.predicted) >= APART * min(one.predicted, other.predicted)


def _power(one: Erred, other: Erred) -> float:
    power = math.log(one.measured / other.measured) / math.log(one.predicted / other.predicted)
    return min(max(power, LEAST_POWER), MOST_POWER)
