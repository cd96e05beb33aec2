"""Holds what a request brings against the limits of its indices: an index out of bounds never reaches a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collage_evo.errors import InputError


def require_inside(feeds: Mapping[str, Any], limits: Mapping[str, tuple[int, int]]) -> None:
    """Make sure that inputs which are indices lead nowhere out of the tensors that they are indices into.

    Args:
        feeds: an array for each input.
        limits: for some of them the least value, and one more than the greatest.

    Raises:
        InputError: one leads out; in ONNX Runtime's words.
    """
    for name, (low, high) in limits.items():
        value = feeds[name]
        # A fraction is cut off towards zero where a float becomes an index, and NaN is in no range.
        if value.size and not (low - 1 < value.min() and value.max() < high):
            flat = np.asarray(value).reshape(-1)
            wrong = flat[~((low - 1 < flat) & (flat < high))][0]
            raise InputError(
                f"input '{name}': indices element out of data bounds, idx={wrong} must be within the inclusive range "
                f"[{low},{high - 1}]"
            )
