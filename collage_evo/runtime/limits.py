"""Check of a request's inputs against their limits, before a library gets an invalid index or too large a number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from collage_evo.errors import CollageError, InputError, one_line
from collage_evo.graph.ir.elements import IN_32_BITS
from collage_evo.runtime.input_limits import first_outside

_OF_AN_INDEX = re.compile(r"\bind(ex|ices)\b|out of (data )?(bounds|range)", re.IGNORECASE)


def require_inside(feeds: Mapping[str, Any], limits: Mapping[str, tuple[int, int]]) -> None:
    """Make sure that index inputs are inside the tensors that they index, and that a library which computes with 32
    bits gets no larger integer.

    Args:
        feeds: an array for each input, in private memory.
        limits: for some of them the least value, and one more than the greatest.

    Raises:
        InputError: an index is outside, in ONNX Runtime's words; or an integer needs too many bits.
    """
    for name, (low, high) in limits.items():
        wrong = first_outside(feeds[name], low, high)
        if wrong is None:
            continue
        if (low, high) == IN_32_BITS:
            raise InputError(
                f"input '{name}': {wrong} takes more than the 32 bits that a library here computes with: give "
                "smaller numbers, or search again without that library (backends.use)"
            )
        raise InputError(
            f"input '{name}': indices element out of data bounds, idx={wrong} must be within the inclusive range "
            f"[{low},{high - 1}]"
        )


def reraise_index_error(error: Exception) -> None:
    """Convert ``error`` to an ``InputError`` if a library that checks indices itself raised it for an index.

    Raises:
        InputError: the library did.
    """
    if not isinstance(error, CollageError) and _OF_AN_INDEX.search(str(error)):
        raise InputError(f"a library cannot run the model on these inputs: {one_line(error)}") from error
