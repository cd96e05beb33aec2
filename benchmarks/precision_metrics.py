"""Metrics of the contest's tasks: take outputs and samples, give the mean of a figure by sample, higher is better.

Each function is called with ``outputs``, for each sample a mapping from output name to array, and ``items``, for each
sample its inputs and labels by name, and can be named to the tool as ``accuracy.metric=precision_metrics.py:NAME``.
Nothing here needs more than numpy and scipy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Outputs = Sequence[Mapping[str, np.ndarray]]
Items = Sequence[Mapping[str, Any]]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""

THRESHOLD = 0.3
"""From which value of the detector's map a pixel is text: the package's default."""
UNCLIP = 1.6
"""By how much of area over circumference a box is larger than what the map marks: the package's default."""
SMALLEST = 3
"""Marks with a side under so many pixels are no boxes: the package's default."""


def exact_match(outputs: Outputs, items: Items) -> float:
    """Share of lines that are read without a mistake; label ``codes``, classes in order, padded with -1.

    CTC as the package decodes it: the best class of each step, repeated ones once, without the blank (class 0).
    """
    return _mean([list(_decoded(_only(o)[0])) == _codes(item) for o, item in zip(outputs, items, strict=True)])


def top1(outputs: Outputs, items: Items) -> float:
    """Share of samples whose highest score is that of the label ``label``."""
    return _mean([int(_only(o).argmax()) == int(i["label"]) for o, i in zip(outputs, items, strict=True)])


def next_character(outputs: Outputs, items: Items) -> float:
    """Share of positions at which the highest score is that of the character in the label ``next``."""
    return _mean([float((_only(o)[0].argmax(-1) == i["next"]).mean()) for o, i in zip(outputs, items, strict=True)])


def box_iou(outputs: Outputs, items: Items) -> float:
    """Intersection over union of boxes of text: label ``boxes``, a row for each, padded with -1.

    The mean over an image's true boxes of the overlap with the best of the boxes found; boxes that were found beyond
    the number of true ones count as misses.
    """
    scores = []
    for made, item in zip(outputs, items, strict=True):
        true = [tuple(map(float, row)) for row in item["boxes"] if row[0] >= 0]
        found = _boxes(_only(made)[0, 0] > THRESHOLD)
        best = [max((_overlap(box, other) for other in found), default=0.0) for box in true]
        scores.append(sum(best) / max(len(true), len(found)))
    return _mean(scores)


def _only(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    (array,) = outputs.values()
    return array


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _decoded(scores: np.ndarray) -> np.ndarray:
    best = scores.argmax(-1)
    changes = np.concatenate([[True], best[1:] != best[:-1]])
    kept: np.ndarray = best[changes & (best != 0)]
    return kept


def _codes(item: Mapping[str, Any]) -> list[int]:
    return [int(code) for code in item["codes"] if code >= 0]


def _boxes(mask: np.ndarray) -> list[Any]:
    """Upright boxes around connected pixels, made larger as the detector was trained for."""
    from scipy.ndimage import find_objects, label

    boxes = []
    for rows, columns in find_objects(label(mask, structure=np.ones((3, 3)))[0]):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if min(height, width) >= SMALLEST:
            more = height * width * UNCLIP / (2 * (height + width))
            boxes.append((columns.start - more, rows.start - more, columns.stop + more, rows.stop + more))
    return boxes


def _overlap(one: Any, other: Any) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return float(both / (_area(one) + _area(other) - both))


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
