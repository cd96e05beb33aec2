"""Seeded random weights for which activations neither vanish nor explode, so that a wrong result shows.

He, Zhang, Ren, Sun, "Delving Deep into Rectifiers" (ICCV 2015): a weight's variance is gain^2 / fan_in, with gain^2 =
2 where the layer's input was rectified (half of its second moment is gone) and 1 where it was not.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

BATCHNORM_PARTS = ("scale", "bias", "mean", "var")
"""Meaning of BatchNormalization's inputs 1 to 4."""


def generator(seed: int, name: str) -> np.random.Generator:
    """The random stream of one named tensor: does not depend on which other tensors a model has."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def normal(rng: np.random.Generator, shape: Sequence[int], std: float, mean: float = 0.0) -> np.ndarray:
    """A float32 normal tensor."""
    values = rng.standard_normal(tuple(shape), dtype=np.float32)
    values *= np.float32(std)
    if mean:
        values += np.float32(mean)
    return values


def layer_weight(rng: np.random.Generator, shape: Sequence[int], fan_in: int, rectified: bool) -> np.ndarray:
    """The weight of a convolution or matrix product over ``fan_in`` inputs an output."""
    return normal(rng, shape, float(np.sqrt((2.0 if rectified else 1.0) / fan_in)))


def batchnorm_part(rng: np.random.Generator, part: str, channels: int, scale: float = 1.0) -> np.ndarray:
    """``scale``, ``bias``, ``mean`` or ``var`` of a BatchNormalization that multiplies by about ``scale``."""
    if part == "scale":
        return normal(rng, (channels,), 0.1 * scale, mean=scale)
    if part == "var":
        return rng.uniform(0.8, 1.25, channels).astype(np.float32)
    return normal(rng, (channels,), 0.05)
