"""Plain arrays and index limits, with only NumPy: exported folders have a copy of this file."""

from __future__ import annotations

from typing import Any

import numpy as np


class MaskedValues(ValueError):
    """A masked array has masked values, which no library can interpret."""

    def __init__(self) -> None:
        super().__init__("has masked values: fill them first (numpy.ma.filled)")


def plain_array(value: Any, dtype: Any = None) -> np.ndarray:
    """``value`` as a plain ``ndarray``, without a copy where possible: a subclass may override methods of a check.

    Raises:
        MaskedValues: it is a masked array with masked values.
    """
    if type(value) is np.ndarray and dtype is None:
        return value
    if isinstance(value, np.ma.MaskedArray) and np.asarray(np.ma.getmask(value)).any():
        raise MaskedValues
    return np.asarray(value, dtype)


def first_outside(value: np.ndarray, low: int, high: int) -> Any:
    """The first number in ``value`` that is no index from ``low`` to ``high - 1``; None if there is none.

    Fractions are truncated towards zero, as by a Cast to an integer.

    The array must be private: later changes by another thread or process are not checked.
    """
    value = np.asarray(value)
    if not value.size:
        return None
    if value.dtype.kind in "biu":
        if low <= int(value.min()) and int(value.max()) < high:
            return None
        inside = (value >= low) & (value < high)
    else:  # NaN compares as false; float64 holds every narrower float and every index exactly
        whole = np.trunc(value.astype(np.float64))
        inside = (low <= whole) & (whole < high)
    return None if inside.all() else value[~inside][0]
