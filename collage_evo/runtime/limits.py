"""Holds what a request brings against its limits: an index out of bounds never reaches a library, nor does a number
that it would cut off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collage_evo.errors import InputError
from collage_evo.graph.elements import IN_32_BITS


def require_inside(feeds: Mapping[str, Any], limits: Mapping[str, tuple[int, int]]) -> None:
    """Make sure that inputs which are indices lead nowhere out of the tensors that they are indices into, and that a
    library which computes with 32 bits gets no number that takes more.

    Args:
        feeds: an array for each input.
        limits: for some of them the least value, and one more than the greatest.

    Raises:
        InputError: one leads out, in ONNX Runtime's words; or it takes too many bits.
    """
    for name, (low, high) in limits.items():
        value = feeds[name]
        # A fraction is cut off towards zero where a float becomes an index, and NaN is in no range.
        if value.size and not (low - 1 < value.min() and value.max() < high):
            flat = np.asarray(value).reshape(-1)
            wrong = flat[~((low - 1 < flat) & (flat < high))][0]
            if (low, high) == IN_32_BITS:
                raise InputError(
                    f"input '{name}': {wrong} takes more than the 32 bits that a library here computes with: give "
                    "smaller numbers, or search again without that library (backends.use)"
                )
            raise InputError(
                f"input '{name}': indices element out of data bounds, idx={wrong} must be within the inclusive range "
                f"[{low},{high - 1}]"
            )
