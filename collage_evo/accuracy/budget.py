"""Error budget of an answer, as the user writes it: the largest error or drop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collage_evo.errors import ConfigError

EXACT = "exact"
FORMS = "give a number as 0.02, a share as 1%, or exact; noise also as 40dB"


@dataclass(frozen=True)
class Budget:
    """The largest error of an answer: None where only float32 arithmetic is allowed.

    Without a metric it is a relative error (2-norm). With one it is the largest drop of the metric, in the metric's
    own units; or, where ``relative``, in shares of the model's own score in float32.
    """

    value: float | None
    relative: bool = False

    @classmethod
    def read(cls, written: float | str) -> Budget:
        """Parse a number, ``1%``, ``exact``, or decibels: 40dB are noise of 0.01 of the signal.

        Raises:
            ValueError: it is none of these.
        """
        text = str(written).strip()
        if text == EXACT:
            return cls(None)
        try:
            if text.lower().endswith("db"):
                return cls(10.0 ** (-_positive(text[:-2]) / 20.0))
            value = _positive(text.removesuffix("%"))
        except ValueError:
            raise ValueError(f"{written!r} is no budget: {FORMS}") from None
        return cls(value / 100, relative=True) if text.endswith("%") else cls(value)

    @property
    def exact(self) -> bool:
        """Whether only float32 arithmetic is allowed."""
        return self.value is None

    def largest(self, score: float | None = None) -> float:
        """The largest error; or, given the ``score`` of a metric that the reference has, its largest drop.

        0.0 where only float32 arithmetic is allowed.
        """
        if self.value is None:
            return 0.0
        return self.value * abs(score) if self.relative and score is not None else self.value


def _positive(text: str) -> float:
    """Raises ValueError where ``text`` is no finite number above zero."""
    if not (math.isfinite(value := float(text)) and value > 0.0):
        raise ValueError(text)
    return value


def checked_budget(written: float | str) -> float | str:
    """``written``, in a form that :meth:`Budget.read` can read, as a number if it is one. Raises as that does."""
    budget = Budget.read(written)
    return written if budget.value is None or budget.relative else budget.value


def budget_option(text: str) -> float | str:
    """Parse ``--budget``.

    Raises:
        ConfigError: it is none.
    """
    try:
        return checked_budget(text)
    except ValueError:
        raise ConfigError(f"--budget {text}: {FORMS}") from None
