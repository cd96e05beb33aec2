"""Distance of a result from what it should be: its error by 2-norm, elements and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LABEL_BYTES = 4
"""Bytes of the whole numbers that are labels, indices, lengths."""
MOST_LABELS = 64
"""Different numbers of a shorter type that may be labels: chosen, not measured."""
LARGEST_LABEL = 2.0**22
"""From here on float32 holds hardly any fractions."""


@dataclass(frozen=True)
class Error:
    """Relative error of a result: 2-norm of the difference over 2-norm of the reference."""

    relative: float
    max_abs: float


@dataclass(frozen=True)
class Distance:
    """2-norm of the difference of a result from its reference, 2-norm of the reference, largest difference."""

    distance: float
    size: float
    max_abs: float

    @property
    def error(self) -> Error:
        """The relative error; for a reference of zeros, zero for an exact result and infinite for any other."""
        relative = self.distance / self.size if self.size else (0.0 if self.distance == 0.0 else np.inf)
        return Error(relative, self.max_abs)


SAME = Distance(0.0, 0.0, 0.0)
OTHER = Distance(np.inf, 0.0, np.inf)


def relative_error(actual: Any, expected: Any) -> Error:
    """The error of one output, or the worst over several, given as sequences; see :func:`distances`."""
    errors = [distance.error for distance in distances(actual, expected)]
    return Error(
        relative=max((error.relative for error in errors), default=0.0),
        max_abs=max((error.max_abs for error in errors), default=0.0),
    )


def distances(actual: Any, expected: Any) -> list[Distance]:
    """The distance of an output from its reference; one for each array of a sequence.

    Infinite where a shape differs, where only one side has a nan or the same infinity, or where values without
    numbers (strings, maps) are not equal.
    """
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(actual, Sequence) or len(actual) != len(expected):
            return [OTHER]
        return [one for a, e in zip(actual, expected, strict=True) for one in distances(a, e)]
    if isinstance(expected, np.ndarray) and expected.dtype.kind not in "OUS":
        return [_distance(np.asarray(actual), expected)]
    return [SAME if np.array_equal(np.asarray(actual), np.asarray(expected)) else OTHER]


def holds_labels(values: Sequence[Any]) -> bool:
    """Whether the elements of an output, observed on several samples, are labels: right or wrong, never nearly right.

    Labels are truth values and whole numbers of ``LABEL_BYTES``, and any other type that only holds whole numbers. Of
    shorter types, outputs with few different values count: many are quantised values, pixels or sound. An output with
    a single value proves nothing.
    """
    if not values or not all(isinstance(value, np.ndarray) for value in values):
        return False
    kinds, widths = {value.dtype.kind for value in values}, [value.dtype.itemsize for value in values]
    if kinds == {"b"} or (kinds <= set("iu") and min(widths) >= LABEL_BYTES):
        return True
    if not kinds <= set("iuf") or not all(map(_whole, values)):
        return False
    different = {float(number) for value in values for number in np.unique(value)}
    return len(different) > 1 and (kinds == {"f"} or len(different) <= MOST_LABELS)


def _whole(value: np.ndarray) -> bool:
    """Whether all numbers are whole, and small enough for their type to hold fractions too."""
    return value.dtype.kind != "f" or bool(np.all((value == np.rint(value)) & (np.abs(value) < LARGEST_LABEL)))


def counted_distances(actual: Any, expected: Any, labels: bool) -> list[Distance]:
    """:func:`distances`, but for ``labels`` the number that differ, against the number of all.

    Labels that a library returns as floats may differ by its rounding.
    """
    if not labels:
        return distances(actual, expected)
    if np.shape(actual) != expected.shape:
        return [OTHER]
    (values,) = distances(actual, expected)
    array = np.asarray(actual)
    rounded = np.rint(array) if array.dtype.kind == "f" else array
    differ = float(np.count_nonzero(rounded != expected))
    return [Distance(differ, float(expected.size), values.max_abs)]


def _distance(actual: np.ndarray, expected: np.ndarray) -> Distance:
    if actual.shape != expected.shape or actual.dtype.kind in "OUS":
        return OTHER
    if not actual.size:
        return SAME
    wide = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
    a, e = actual.astype(wide), expected.astype(wide)
    usual = np.isfinite(e)
    if not usual.all():
        # A mask of minus infinity is a result like any other: both sides must have the same.
        if not np.array_equal(a[~usual], e[~usual], equal_nan=True):
            return OTHER
        a, e = a[usual], e[usual]
        if not a.size:
            return SAME
    if not np.isfinite(a).all():
        return OTHER
    largest = float(np.abs(e).max()) or 1.0  # divides both, because squares of large numbers overflow
    difference = a / largest - e / largest
    distance, size = float(np.linalg.norm(difference)), float(np.linalg.norm(e / largest))
    return Distance(distance * largest, size * largest, float(np.abs(difference).max()) * largest)
