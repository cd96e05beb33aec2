"""Kinds of outputs, recognised by shape and values: scores of classes, an embedding, an image, a text.

Scores of classes lie along the last axis; along the second if there are four axes or more, as in images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from collage_evo.accuracy.samples import Sample

SIDE = 16
"""Minimum number of rows and columns of an image."""
EMBEDDING = 16
"""Minimum length of an embedding."""


def where(samples: Sequence[Sample], fits: Callable[[np.ndarray], bool]) -> list[str]:
    """Names of the outputs that are arrays which ``fits`` accepts, on every sample."""
    names = samples[0].expected if samples else {}
    arrays: Mapping[str, list[Any]] = {name: [sample.expected[name] for sample in samples] for name in names}
    return [name for name, all_ in arrays.items() if all(isinstance(one, np.ndarray) and fits(one) for one in all_)]


def class_axis(array: np.ndarray) -> int:
    return -1 if array.ndim <= 3 else 1


def holds_floats(array: np.ndarray) -> bool:
    """Whether there are any, along some axis."""
    return array.dtype.kind == "f" and array.ndim > 0 and array.size > 0


def has_classes(array: np.ndarray) -> bool:
    return holds_floats(array) and array.shape[class_axis(array)] > 1


def is_vector(array: np.ndarray) -> bool:
    return array.ndim > 0 and array.size == array.shape[-1]


def is_distribution(array: np.ndarray) -> bool:
    """Whether classes have probabilities, or logarithms of them."""
    wide, axis = array.astype(np.float64), class_axis(array)
    if np.isnan(wide).any() or wide.max() > 1.001:
        return False
    chances = wide if wide.min() >= 0.0 else np.exp(wide)
    return bool(np.allclose(chances.sum(axis=axis), 1.0, atol=1e-2))


def comparable(output: Any, expected: np.ndarray) -> bool:
    """Whether shapes agree, and ``output`` is finite wherever it should be."""
    array = np.asarray(output)
    if array.shape != expected.shape or array.dtype.kind not in "biuf":
        return False
    return bool((np.isfinite(array) | ~np.isfinite(expected)).all())


def decides(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or has_classes(array)


def usually_decides(array: np.ndarray) -> bool:
    if not has_classes(array):
        return False
    length = float(np.linalg.norm(array.astype(np.float64)))
    unit = abs(length - 1.0) < 1e-2  # a length that is NaN is none
    return is_distribution(array) or (is_vector(array) and not unit)


def is_embedding(array: np.ndarray) -> bool:
    if not holds_floats(array) or array.shape[-1] < EMBEDDING or is_distribution(array):
        return False
    return is_vector(array) or array.ndim == 3


def is_image(array: np.ndarray) -> bool:
    if array.ndim != 4 or array.dtype.kind not in "uf":
        return False
    _, *sides = array.shape
    return any(
        sides[place] in (1, 3, 4) and min(side for other, side in enumerate(sides) if other != place) >= SIDE
        for place in (0, 2)
    )


def is_text(array: np.ndarray, axis: int = -1) -> bool:
    """Whether it holds codes, or scores of classes along ``axis``."""
    scores = array.ndim in (2, 3) and axis < array.ndim and holds_floats(array)
    return array.dtype.kind in "iu" or (scores and array.shape[axis] > 1)


def is_usually_text(array: np.ndarray) -> bool:
    several_steps = array.ndim == 3 and min(array.shape[:2]) == 1 and max(array.shape[:2]) > 1
    return several_steps and has_classes(array) and is_distribution(array)
