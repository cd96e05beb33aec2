"""Windows of convolutions and pools: takes sizes and padding, gives zeros to add and elements in each window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np


def same_pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], lower: bool
) -> tuple[list[int], list[int]]:
    """Zeros before and after each axis so that it gives ceil(size / stride) windows (ONNX, ``auto_pad``)."""
    before, after = [], []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(large if lower else small)
        after.append(small if lower else large)
    return before, after


def window_counts(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: tuple[Sequence[int], Sequence[int]],
    windows: Sequence[int],
    padding_counts: bool,
) -> np.ndarray:
    """How many elements each window averages over: those of the input, and of its padding if that counts.

    What a last window reaches beyond the padding never counts.
    """
    counts = []
    for size, extent, stride, front, back, number in zip(sizes, kernel, strides, *pads, windows, strict=True):
        first, last = (-front, size + back) if padding_counts else (0, size)
        begin = np.arange(number) * stride - front
        counts.append(np.minimum(begin + extent, last) - np.maximum(begin, first))
    return reduce(np.multiply.outer, counts)
