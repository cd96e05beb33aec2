"""Errors of results: relative to the reference by 2-norm, infinite for what cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage_evo.graph.reference.distance import relative_error

NAN, INF = np.nan, np.inf
MASK = np.array([-INF, 1.0, NAN])


@pytest.mark.parametrize(
    ("actual", "expected", "relative", "most"),
    [
        (np.array([3.0, 4.5]), np.array([3.0, 4.0]), 0.1, 0.5),
        (np.array([2e300, 1e300]), np.array([1e300, 1e300]), 0.5**0.5, 1e300),
        *((np.array(wrong), np.ones(2), INF, INF) for wrong in ([NAN, 1.0], [INF, 1.0], [1.0])),
        (MASK, MASK, 0.0, 0.0),
        (np.array([-INF, 1.0, 0.0]), MASK, INF, INF),
        (np.array([INF, 1.0, NAN]), MASK, INF, INF),
        (np.array(["a", "b"]), np.array(["a", "b"]), 0.0, 0.0),
        (np.array(["a", "c"]), np.array(["a", "b"]), INF, INF),
        (np.zeros(3), np.zeros(3), 0.0, 0.0),
        (np.full(3, 1e-9), np.zeros(3), INF, 1e-9),
        ([[np.ones(2)]], [[np.ones(2)]], 0.0, 0.0),
        ([[np.ones(2)], []], [[np.ones(2)]], INF, INF),
        ([np.array([1.0, 2.0]), np.ones(2)], [np.array([1.0, 2.0])] * 2, 0.2**0.5, 1.0),
        ([np.ones(2)], [np.ones(2)] * 2, INF, INF),
    ],
)
def test_relative_error(actual: Any, expected: Any, relative: float, most: float) -> None:
    error = relative_error(actual, expected)
    assert (error.relative, error.max_abs) == pytest.approx((relative, most), rel=1e-6, abs=0.0)
