"""Scales and zero points of QuantizeLinear and DequantizeLinear, from ranges and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LEVELS = 255
_LARGEST = 127
_BIAS_ROOM = 2.0**30
"""A bias of int32 must not be larger, in units of its scale."""


@dataclass(frozen=True)
class Scale:
    """``value = scale * (number - zero_point)``; numbers have the type of ``zero_point``: uint8 or int8."""

    scale: np.float32
    zero_point: np.uint8 | np.int8


def activation_scale(least: float, greatest: float) -> Scale:
    """uint8 over a range, widened so that zero is in it and is represented exactly.

    An empty range, of a tensor that is all zero, has scale 1.
    """
    low, high = min(least, 0.0), max(greatest, 0.0)
    scale = np.float32((high - low) / _LEVELS)
    if not scale >= np.finfo(np.float32).tiny:
        return Scale(np.float32(1.0), np.uint8(0))
    return Scale(scale, np.uint8(np.clip(np.rint(-low / float(scale)), 0, _LEVELS)))


def symmetric_scale(least: float, greatest: float) -> Scale:
    """int8 over a range centred on zero; :func:`activation_scale` where nothing is below zero."""
    scale = np.float32(max(-least, greatest) / _LARGEST)
    if least >= 0 or not scale >= np.finfo(np.float32).tiny:
        return activation_scale(least, greatest)
    return Scale(scale, np.int8(0))


def weight_scales(weights: np.ndarray, axis: int) -> np.ndarray:
    """float32 [channels]: symmetric int8 over each channel along ``axis``; 1 where all weights are zero."""
    others = tuple(other for other in range(weights.ndim) if other != axis)
    return scales_of(np.abs(weights).max(axis=others).astype(np.float64))


def largest_pairs(weights: np.ndarray) -> np.ndarray:
    """float64 [outputs]: the largest sum of two weights of like sign that a saturating instruction may add together.

    Scales by these instead of the largest weight bound each pair by 128, so that with activations of 255 it fits 16
    bits (``Machine.saturates_int8``). Libraries pair neighbours along the sum: some input channels at the same kernel
    element, others all inputs with the channels last. The orders differ for an odd number of channels.

    Args:
        weights: [outputs, inputs of a group, kernel...].
    """
    largest = _paired(np.moveaxis(weights, 1, -1))
    if weights.ndim > 2:  # a matrix has one order
        largest = np.maximum(largest, _paired(np.moveaxis(weights, 1, -1).reshape(len(weights), 1, -1)))
    return largest


def largest_two(weights: np.ndarray) -> np.ndarray:
    """:func:`largest_pairs` for pairs in any order; ``weights``: [outputs, inputs...]."""
    flat = weights.reshape(len(weights), -1).astype(np.float64)
    best = [np.sort(np.maximum(sign * flat, 0.0))[:, -2:].sum(1) for sign in (1.0, -1.0)]
    return np.asarray(np.maximum(*best))


def _paired(weights: np.ndarray) -> np.ndarray:
    """float64 [outputs]: the largest sum of like sign of pairs along the last axis, from its first element on.

    Of unlike signs it is the larger of both, which no sum of the two exceeds.
    """
    second = weights[..., 1::2]
    sums, others = weights[..., 0::2][..., : second.shape[-1]] + second, tuple(range(1, weights.ndim))
    ends = [values.max(others, initial=0) for values in (weights, sums)]
    ends += [-values.min(others, initial=0) for values in (weights, sums)]
    return np.asarray(np.max(ends, axis=0).astype(np.float64))


def scales_of(largest: np.ndarray) -> np.ndarray:
    """float32: the scale that maps ``largest`` of each channel to the largest integer; 1 where that is zero."""
    scales = (largest / _LARGEST).astype(np.float32)
    return np.asarray(np.where(scales >= np.finfo(np.float32).tiny, scales, np.float32(1.0)))


def with_room_for(bias: np.ndarray, input_scale: np.float32, scales: np.ndarray) -> np.ndarray:
    """``scales`` of weights, larger where ``bias`` in units of input times weight scale would overflow int32."""
    needed = np.abs(bias.astype(np.float64)) / (float(input_scale) * _BIAS_ROOM)
    return np.asarray(np.maximum(scales, needed.astype(np.float32)))


def quantise_weights(weights: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
    """int8 of the shape of ``weights``, rounded to even."""
    shape = [-1 if place == axis else 1 for place in range(weights.ndim)]
    numbers = np.divide(weights, scales.reshape(shape), dtype=np.float32)
    np.clip(np.rint(numbers, out=numbers), -_LARGEST, _LARGEST, out=numbers)
    return np.asarray(numbers.astype(np.int8))


def quantise_bias(bias: np.ndarray, input_scale: np.float32, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 and float32 [channels]: ``bias`` in units of input scale times weight scale, and these units."""
    units = (np.float32(input_scale) * scales).astype(np.float32)
    units = np.where(units > 0, units, np.finfo(np.float32).tiny)
    return np.rint(bias.astype(np.float64) / units.astype(np.float64)).astype(np.int32), units
