"""Bias correction: takes what rounding changed in weights and the mean input, gives the bias that undoes its mean.

Rounded weights move the mean of an operator's output, and later operators pass that on, whereas errors without a mean
partly cancel out (Nagel et al., *Data-Free Quantization through Weight Equalization and Bias Correction*, ICCV 2019;
here with means that were measured).
"""

from __future__ import annotations

import numpy as np


def mean_shift(
    weights: np.ndarray,
    numbers: np.ndarray,
    scales: np.ndarray,
    axis: int,
    means: np.ndarray,
    inside: np.ndarray,
) -> np.ndarray:
    """float64 [output channels]: how far the mean of outputs falls where weights are ``numbers`` times ``scales``.

    Args:
        weights: float32 of a convolution, [outputs, inputs of a group, kernel...], or of a Gemm, in either order.
        numbers: int8 in the shape of ``weights``.
        scales: float32 [output channels].
        axis: that of the output channels in ``weights``.
        means: float32 [input channels] of all groups: means of the operator's input, which are taken to be the same
            everywhere on it.
        inside: in the shape of the kernel, in which share of the outputs each of its places is not on padding.
    """
    exact, rounded = (np.moveaxis(array, axis, 0).astype(np.float64) for array in (weights, numbers))
    outputs = len(exact)
    lost = exact - rounded * scales.astype(np.float64).reshape(-1, *[1] * (exact.ndim - 1))
    lost = (lost * inside).reshape(outputs, exact.shape[1], -1).sum(-1)
    groups = len(means) // exact.shape[1]
    mean = np.asarray(means, np.float64).reshape(groups, -1)
    shift: np.ndarray = np.einsum("goi,gi->go", lost.reshape(groups, outputs // groups, -1), mean).reshape(-1)
    return shift


def corrected_bias(bias: np.ndarray | None, shift: np.ndarray) -> np.ndarray:
    """float32 [output channels]: what to add instead of ``bias``, which is broadcast to them, or None for none."""
    before = np.zeros(len(shift)) if bias is None else np.broadcast_to(bias, len(shift)).astype(np.float64)
    corrected: np.ndarray = (before + shift).astype(np.float32)
    return corrected
