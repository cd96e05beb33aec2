"""How wrong the results of a run may be: bounds from what a person asked for and what the model's noise is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from collage_evo.accuracy.budget import EXACT, Budget

FRONT_FACTOR, LEAST_FRONT = 3.0, 0.1
"""Errors are measured up to so many times the budget, and up to so much at least, so that a person can pick another
budget afterwards. Chosen."""


@dataclass(frozen=True)
class Limits:
    """Decided once in a run, and kept in its directory.

    Errors are relative (2-norm); with a metric, ``budget`` and ``front`` are drops of it.

    Attributes:
        tolerance: largest error of a right result in float32 arithmetic.
        budget: largest error of the answer; 0.0 where only float32 may answer, however small others' error is.
        front: where the front of latency against error ends: what is further off in a lower precision is refused.
            0.0 where only float32 may answer.
        asked: the budget as a person wrote it.
        noise: error of right results, the model's own: neither tolerance nor an error's budget is smaller.
        by_metric: whether a person's metric judges.
        score: what the model itself reaches by it in float32; None where that is not known.
    """

    tolerance: float
    budget: float = 0.0
    front: float = 0.0
    asked: float | str = EXACT
    noise: float = 0.0
    by_metric: bool = False
    score: float | None = None

    @classmethod
    def decide(
        cls,
        asked: float | str,
        tolerance: float,
        noise: float = 0.0,
        by_metric: bool = False,
        score: float | None = None,
    ) -> Limits:
        """The limits for the budget that a person ``asked`` for, and the ``tolerance`` they have for float32.

        Raises:
            ValueError: ``asked`` is no budget.
        """
        value = Budget.read(asked).value
        if value is not None and not by_metric:
            tolerance = min(tolerance, value)  # float32 arithmetic has to keep the budget too
        unbound = cls(max(tolerance, noise), noise=noise, by_metric=by_metric, score=score)
        found = unbound.with_budget(asked)
        front = max(LEAST_FRONT, FRONT_FACTOR * found.budget, LEAST_FRONT * abs(score or 0.0))
        return replace(found, front=front if found.budget else 0.0)

    def with_budget(self, asked: float | str) -> Limits:
        """The same with another budget: what was measured stays as it is. Raises as :meth:`decide`."""
        budget = Budget.read(asked)
        least = 0.0 if self.by_metric or budget.exact else self.noise
        return replace(self, budget=max(budget.largest(self.score), least), asked=asked)

    @property
    def accepted(self) -> float:
        """The largest error of an answer, be it in float32."""
        return max(self.tolerance, self.budget)

    @property
    def measured(self) -> float:
        """The largest error of whatever takes part: who rounds by more does not.

        0.0 where only float32 may answer: its tolerance is no room for others, though float16 would fit in.
        """
        return max(self.tolerance, self.front) if self.front else 0.0

    def allows(self, error: float | None, exact: bool) -> bool:
        """Whether something with this error, float32 throughout (``exact``) or not, may be the answer."""
        if self.budget == 0.0:
            return exact
        return math.isinf(self.budget) or (error is not None and error <= self.budget)
