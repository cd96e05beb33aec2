"""Bias correction: a bias that undoes the mean error of rounded weights.

Rounded weights move the mean of an operator's output, and later operators pass that on, whereas errors without a mean
partly cancel out (Nagel et al., *Data-Free Quantization through Weight Equalization and Bias Correction*, ICCV 2019;
here with measured means).
"""

from __future__ import annotations

import numpy as np


def mean_shift(
    weights: np.ndarray, numbers: np.ndarray, scales: np.ndarray, axis: int, means: np.ndarray, inside: np.ndarray
) -> np.ndarray:
    """float64 [output channels]: the decrease of the outputs' mean where weights are ``numbers`` times ``scales``.

    Args:
        weights: float32 of a convolution, [outputs, inputs of a group, kernel...], or of a Gemm, in either order.
        numbers: int8 in the shape of ``weights``.
        scales: float32 [output channels].
        axis: of the output channels in ``weights``.
        means: float32 [input channels] of all groups: means of the operator's input, assumed to be equal at all of
            its positions.
        inside: in the shape of the kernel, the share of the outputs for which each element is not on padding.
    """
    exact, rounded = np.moveaxis(weights, axis, 0), np.moveaxis(numbers, axis, 0)
    outputs, last = len(exact), tuple(range(2, exact.ndim))
    # In float32 the difference is off by a hundredth of a thousandth of the largest one.
    lost = exact - rounded * scales.reshape(-1, *[1] * (exact.ndim - 1))
    lost = np.sum(lost * inside, last, np.float64) if last else lost
    groups = len(means) // exact.shape[1]
    mean = np.asarray(means, np.float64).reshape(groups, -1)
    return np.asarray(np.einsum("goi,gi->go", lost.reshape(groups, outputs // groups, -1), mean).reshape(-1))


def corrected_bias(bias: np.ndarray | None, shift: np.ndarray) -> np.ndarray:
    """float32 [output channels]: the corrected ``bias``, which is broadcast to them; None stands for no bias."""
    before = np.zeros(len(shift)) if bias is None else np.broadcast_to(bias, len(shift)).astype(np.float64)
    return np.asarray((before + shift).astype(np.float32))
