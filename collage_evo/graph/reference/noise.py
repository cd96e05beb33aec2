"""Noise of a model's outputs: how far rounding by itself moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collage_evo.graph.reference.distance import LARGEST_LABEL, relative_error

NEARLY = 1e-3
"""An element that is off by more than this part of the largest one is another number, as after another choice."""
ROOM = 2.0
"""Allowed error of a correct result, as a multiple of an output's noise. A 2-norm that is twice as large belongs to
four times as many elements that differ."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Noise:
    """How far rounding moves an output.

    Attributes:
        error: the relative error (2-norm) of the elements that stay finite; infinite where rounding decides the
            shape.
        share: of the elements that become other numbers, such as an index. 0.0 for another shape.
        overflows: whether elements become infinite or NaN.
    """

    error: float = 0.0
    share: float = 0.0
    overflows: bool = False

    def __or__(self, other: Noise) -> Noise:
        """The larger of both."""
        values = max(self.error, other.error), max(self.share, other.share), self.overflows or other.overflows
        return Noise(*values)

    @property
    def allowed(self) -> Noise:
        """What a correct result may have."""
        return Noise(ROOM * self.error, min(1.0, ROOM**2 * self.share), self.overflows)

    def explains(self, error: float, counted: bool = False) -> bool:
        """Whether rounding explains an ``error``; if ``counted``, the share of an output's elements that differ."""
        return error <= (self.share if counted and math.isfinite(self.error) else self.error)


RANDOM = Noise(math.inf, 1.0)
"""That of an output which differs from run to run."""


def noise_of(moved: Any, expected: Any) -> Noise:
    """The noise of an output that is ``moved`` where it should be ``expected``."""
    overflows, floats = False, isinstance(expected, np.ndarray) and expected.dtype.name in _FLOATS
    if floats and np.shape(moved) == expected.shape:
        finite = np.isfinite(moved), np.isfinite(expected)
        both, overflows = finite[0] & finite[1], bool((finite[0] != finite[1]).any())
        moved, expected = moved[both], expected[both]
    return Noise(relative_error(moved, expected).relative, differing(moved, expected), overflows)


def differing(actual: Any, expected: Any) -> float:
    """The share of the elements of an output that are other numbers; 0.0 for another shape."""
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        pairs = zip(actual, expected, strict=False) if isinstance(actual, Sequence) else ()
        return max((differing(a, e) for a, e in pairs), default=0.0)
    a, e = np.asarray(actual), np.asarray(expected)
    if a.shape != e.shape or not e.size:
        return 0.0
    if e.dtype.kind in "OUSc" or a.dtype.kind in "OUSc":
        return float(np.mean(a != e))
    a, e = a.astype(np.float64), e.astype(np.float64)
    largest = np.abs(e[np.isfinite(e)]).max(initial=0.0)
    most = 0.5 if largest < LARGEST_LABEL and (e == np.rint(e)).all() else NEARLY * largest
    with np.errstate(invalid="ignore"):
        same = (a == e) | (np.abs(a - e) <= most) | (np.isnan(a) & np.isnan(e))
    return float(np.mean(~same))
