"""NaN and infinity: inputs that hold one in each array, and a check that outputs propagate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KINDS: Mapping[str, float] = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf}
ALL_NAN = "nothing but NaN"


def spoiled(feeds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inputs with one of ``KINDS`` in every array of floats, and with nothing but NaN; none without floats.

    The value is near the middle, one element further in each array: an operator on two of them meets a number and NaN
    in either order. A window or a row of nothing but NaN is a separate case (openvino #35935).
    """
    floats = [name for name, value in feeds.items() if _holds_floats(value) and value.size]
    if not floats:
        return {}
    found = {
        kind: {**feeds, **{name: _with(feeds[name], number, shift) for shift, name in enumerate(floats)}}
        for kind, number in KINDS.items()
    }
    found[ALL_NAN] = {**feeds, **{name: np.full_like(feeds[name], np.nan) for name in floats}}
    return found


def lost(actual: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether NaN and infinities of the outputs are elsewhere than expected, or outputs that locate them differ."""
    return any(_differ(a, e) for a, e in zip(actual, expected, strict=True))


def nonfinite(values: Mapping[str, Any]) -> str:
    """The first of ``values`` that holds NaN or infinity, by name; empty where none does."""
    return next((name for name, value in values.items() if _holds_floats(value) and not _all_finite(value)), "")


def _all_finite(value: np.ndarray) -> bool:
    return bool(np.isfinite(value).all())


def _differ(actual: Any, expected: Any) -> bool:
    if not isinstance(expected, np.ndarray) or not (_holds_floats(expected) or expected.dtype == bool):
        return False
    if expected.dtype != bool:  # which of them, where
        actual, expected = (np.where(np.isfinite(value), 0, value) for value in (actual, expected))
    return not np.array_equal(actual, expected, equal_nan=expected.dtype != bool)


def _holds_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")


def _with(value: np.ndarray, number: float, shift: int) -> np.ndarray:
    changed = value.copy()
    changed.flat[(value.size // 2 + shift) % value.size] = number
    return changed
