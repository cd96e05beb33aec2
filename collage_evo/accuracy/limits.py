"""Error limits of a run's results, from the user's budget and the model's noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from collage_evo.accuracy.budget import EXACT, Budget
from collage_evo.graph.reference.noise import Noise

FRONT_FACTOR, LEAST_FRONT = 3.0, 0.1
"""Errors are measured up to so many times the budget, and up to so much at least, so that the user can pick another
budget afterwards. Chosen."""


def beyond(tolerance: float, explained: Mapping[str, Noise]) -> dict[str, Noise]:
    """By output, what rounding explains, if that is an error of more than ``tolerance``."""
    return {name: noise for name, noise in explained.items() if noise.error > tolerance}


@dataclass(frozen=True)
class Limits:
    """Error limits, decided once in a run and saved in its directory.

    Errors are relative (2-norm); with a metric, ``budget`` and ``front`` are drops of it.

    Attributes:
        tolerance: largest error of a correct result in float32 arithmetic.
        budget: largest error of the answer; 0.0 if only float32 may answer, however small others' error is.
        front: end of the front of latency against error: a larger error in a lower precision is refused.
            0.0 if only float32 may answer.
        asked: the budget as the user wrote it.
        excused: by output, what rounding itself explains if that is an error of more than the tolerance. An output
            with no larger error counts as correct, whatever the budget; in float32 it may not have more elements that
            are other numbers either.
        by_metric: whether a user's metric judges.
        score: the model's own score in float32; None where that is not known.
    """

    tolerance: float
    budget: float = 0.0
    front: float = 0.0
    asked: float | str = EXACT
    excused: Mapping[str, Noise] = field(default_factory=dict, hash=False)
    by_metric: bool = False
    score: float | None = None

    @classmethod
    def decide(
        cls,
        asked: float | str,
        tolerance: float,
        explained: Mapping[str, Noise] | None = None,
        by_metric: bool = False,
        score: float | None = None,
    ) -> Limits:
        """The limits for the budget that the user ``asked`` for, and the ``tolerance`` of float32.

        ``explained``: by output, the most that rounding explains.

        Raises:
            ValueError: ``asked`` is no budget.
        """
        value = Budget.read(asked).value
        if value is not None and not by_metric:
            tolerance = min(tolerance, value)  # float32 arithmetic has to be within the budget too
        excused = beyond(tolerance, explained or {})
        unbound = cls(tolerance, excused=excused, by_metric=by_metric, score=score)
        limits = unbound.with_budget(asked)
        front = max(LEAST_FRONT, FRONT_FACTOR * limits.budget, LEAST_FRONT * abs(score or 0.0))
        return replace(limits, front=front if limits.budget else 0.0)

    def with_budget(self, asked: float | str) -> Limits:
        """The same with another budget; measurements stay valid. Raises as :meth:`decide`."""
        return replace(self, budget=Budget.read(asked).largest(self.score), asked=asked)

    def notes(self) -> tuple[str, ...]:
        """Notes on outputs that no library can be expected to compute within the tolerance, or the budget."""
        budget = f", whatever the budget of {self.budget:.2g}" if self.budget and not self.by_metric else ""
        moved = "Rounding alone moves output {!r} by up to {:.1e}: errors up to that count as none" + budget
        reshaped = "Rounding alone decides the shape of output {!r}: another shape counts as no error" + budget
        return tuple(
            (moved if math.isfinite(noise.error) else reshaped).format(name, noise.error)
            for name, noise in self.excused.items()
            if math.isfinite(noise.error) or noise.share < 1.0  # random ones have a note already
        )

    @property
    def of_pieces(self) -> float:
        """The largest error of a correct piece in float32 arithmetic, which may produce any of the outputs.

        Outputs that rounding gives another shape, or that are random, excuse no piece.
        """
        finite = (noise.error for noise in self.excused.values() if math.isfinite(noise.error))
        return max(self.tolerance, *finite, 0.0)

    @property
    def accepted(self) -> float:
        """The largest error of an answer, also in float32."""
        return max(self.tolerance, self.budget)

    @property
    def measured(self) -> float:
        """The largest error of engines that take part: those with larger rounding do not.

        0.0 if only float32 may answer: its tolerance does not admit others, though float16 would fit in.
        """
        return max(self.tolerance, self.front) if self.front else 0.0

    def allows(self, error: float | None, exact: bool) -> bool:
        """Whether a placement with this error, float32 throughout (``exact``) or not, may be the answer."""
        if self.budget == 0.0:
            return exact
        return math.isinf(self.budget) or (error is not None and error <= self.budget)
