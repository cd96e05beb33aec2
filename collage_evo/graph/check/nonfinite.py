"""NaN and infinity: inputs that hold one in each array, and a check that outputs propagate them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

KINDS: Mapping[str, float] = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf}
FIRST_NAN, LAST_NAN, ALL_NAN = "NaN as the first", "NaN as the last", "nothing but NaN"


def spoiled(feeds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The inputs with one of ``KINDS`` in every array of floats, with NaN at its ends, and with nothing but NaN; none
    without floats.

    The value is near the middle, or one of the ends, one element further in each array: an operator on two of them
    meets a number and NaN in either order. Code for vectors treats the ends of a row apart: OpenVINO's ReduceMax
    loses NaN only there. A window or a row of nothing but NaN is a separate case (openvino #35935).
    """
    floats = [name for name, value in feeds.items() if _holds_floats(value) and value.size]
    if not floats:
        return {}

    def at(number: float, place: Callable[[int], int]) -> dict[str, Any]:
        changed = {
            name: _with(feeds[name], number, place(feeds[name].size) + shift) for shift, name in enumerate(floats)
        }
        return {**feeds, **changed}

    samples = {kind: at(number, lambda size: size // 2) for kind, number in KINDS.items()}
    samples |= {FIRST_NAN: at(np.nan, lambda size: 0), LAST_NAN: at(np.nan, lambda size: size - 1)}
    samples[ALL_NAN] = {**feeds, **{name: np.full_like(feeds[name], np.nan) for name in floats}}
    return samples


def lost(actual: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether NaN and infinities of the outputs are elsewhere than expected, or outputs that locate them differ."""
    return any(_differ(a, e) for a, e in zip(actual, expected, strict=True))


def nonfinite(values: Mapping[str, Any]) -> str:
    """The first of ``values`` that holds NaN or infinity, by name; empty where none does."""
    return next((name for name, value in values.items() if _holds_floats(value) and not np.isfinite(value).all()), "")


def _differ(actual: Any, expected: Any) -> bool:
    if not isinstance(expected, np.ndarray) or not (_holds_floats(expected) or expected.dtype == bool):
        return False
    if expected.dtype != bool:  # which of them, where
        actual, expected = (np.where(np.isfinite(value), 0, value) for value in (actual, expected))
    return not np.array_equal(actual, expected, equal_nan=expected.dtype != bool)


def _holds_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")


def _with(value: np.ndarray, number: float, place: int) -> np.ndarray:
    changed = value.copy()
    changed.flat[place % value.size] = number
    return changed
