"""A range leaves values out where that halves the squared error of all."""

from __future__ import annotations

import numpy as np

from collage_evo.quantise.clipping import clipped


def normal(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(count).astype(np.float32)


def test_one_value_far_out_is_cut_off() -> None:
    values = normal(2_000_000)
    least = float(values.min())
    low, high = clipped(np.append(values, np.float32(30.0)), least, 30.0)
    assert low == least
    assert float(values.max()) <= high < 16.0


def test_values_that_lie_evenly_keep_their_range() -> None:
    values = np.linspace(-1.0, 2.0, 10_000, dtype=np.float32)
    assert clipped(values, -1.0, 2.0) == (-1.0, 2.0)


def test_many_values_far_out_stay() -> None:
    values = np.concatenate([normal(50_000), np.full(5_000, 30.0, np.float32)])
    assert clipped(values, float(values.min()), 30.0) == (float(values.min()), 30.0)


def test_a_tensor_of_one_value_keeps_it() -> None:
    assert clipped(np.full(10, 2.0, np.float32), 2.0, 2.0) == (2.0, 2.0)
    assert clipped(np.zeros(0, np.float32), -1.0, 1.0) == (-1.0, 1.0)
