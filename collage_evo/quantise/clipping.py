"""Ranges by squared error: takes values of a tensor and their extremes, gives the range that uint8 tells best apart.

A few values far out make all others coarse. Cutting them off costs their squared distance; which is worth it is tried
(Wu et al., *Integer Quantization for Deep Learning Inference*, 2020, compares this with other ways to choose).
"""

from __future__ import annotations

import numpy as np

from collage_evo.quantise.scales import activation_scale

BINS = 8_192
"""Of the histogram that stands for the values: six in the smallest step of uint8 that is tried."""
SHARES = np.linspace(1.0, 0.2, 17)
"""Shares of the range, of either end or both, that are tried."""
WORTH = 0.5
"""A narrower range has to lower the squared error to this share: values far out may be what a model is about, as in
detectors, whose error grew where less was enough (docs/quantisation.md)."""


def clipped(values: np.ndarray, least: float, greatest: float) -> tuple[float, float]:
    """The part of the range from ``least`` to ``greatest`` with the smallest squared error of rounding ``values``.

    Args:
        values: float32, some of the tensor's values; with none the range stays as it is.
        least: of all values.
        greatest: of all values.
    """
    if not values.size or not least < greatest:
        return least, greatest
    counts, edges = np.histogram(values, BINS, (least, greatest))
    filled = counts > 0
    places = ((edges[:-1] + edges[1:]) / 2)[filled].astype(np.float32)
    weights = counts[filled].astype(np.float32)
    best = WORTH * _squared_error(places, weights, least, greatest)
    found = (least, greatest)
    for share in SHARES:
        for low, high in ((share, share), (1.0, share), (share, 1.0)):
            tried = (least * low if least < 0 else least, greatest * high if greatest > 0 else greatest)
            error = _squared_error(places, weights, *tried)
            if error < best:
                best, found = error, tried
    return found


def _squared_error(values: np.ndarray, weights: np.ndarray, low: float, high: float) -> float:
    scale = activation_scale(low, high)
    zero = np.float32(scale.zero_point)
    numbers = np.clip(np.rint(values / scale.scale) + zero, 0, 255)
    off = (numbers - zero) * scale.scale - values
    return float(weights @ (off * off))
