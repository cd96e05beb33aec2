"""Metrics of the contest's tasks: means over samples, of which higher values are better.

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
SPEECH = 0.5
"""From which probability a window holds speech: the package's default."""
SOUNDS = 0.3
"""From which probability a key sounds in a frame: the package's default."""
NOTES = "StatefulPartitionedCall:1"
"""The output that says which keys sound, as the package names it."""
LOWEST_CENTS, CENTS = 1997.3794, 20.0
"""The pitch of CREPE's first class above 10 Hz, and from class to class."""
STRIDES, SCENE = (8, 16, 32), 416
"""Pixels between the cells of each grid, and of the image's sides."""
SURE, TOGETHER, MOST = 0.1, 0.45, 50
"""From which score a cell counts, from which overlap two are one (the package's defaults), and at most how many."""
SMALLEST = 3
"""Marks with a side under so many pixels are no boxes: the package's default."""


def exact_match(outputs: Outputs, items: Items) -> float:
    """Share of lines that are read without a mistake; label ``codes``, classes in order, padded with -1.

    CTC as the package decodes it: the best class of each step, repeated ones once, without the blank (class 0).
    """
    return _mean([list(_decoded(_only(o)[0])) == _codes(item) for o, item in zip(outputs, items, strict=True)])


def sign_match(outputs: Outputs, items: Items) -> float:
    """The same for scores [steps, 1, classes] whose blank is the last class."""
    made = [np.roll(_only(output)[:, 0], 1, -1) for output in outputs]
    return _mean([[c - 1 for c in _decoded(o)] == _codes(item) for o, item in zip(made, items, strict=True)])


def character_iou(outputs: Outputs, items: Items) -> float:
    """As ``box_iou``, of characters: a row of the output for each cell of three grids (Ge et al., "YOLOX", 2021)."""
    return _mean([_matched(_cells(_only(made)[0]), item) for made, item in zip(outputs, items, strict=True)])


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
    made = [_boxes(_only(made)[0, 0] > THRESHOLD) for made in outputs]
    return _mean([_matched(boxes, item) for boxes, item in zip(made, items, strict=True)])


def windows(outputs: Outputs, items: Items) -> float:
    """Share of windows of sound in which speech is told from none; label ``speech``, 0 or 1 for each."""
    made = [_first(output).ravel() > SPEECH for output in outputs]
    return _mean([float((speech == item["speech"]).mean()) for speech, item in zip(made, items, strict=True)])


def quarter_tone(outputs: Outputs, items: Items) -> float:
    """Share of sounds whose likeliest pitch is within 50 cents; label ``cents`` above 10 Hz."""
    made = [LOWEST_CENTS + CENTS * int(_only(output).argmax()) for output in outputs]
    return _mean([float(abs(cents - float(item["cents"])) <= 50.0) for cents, item in zip(made, items, strict=True)])


def notes_f1(outputs: Outputs, items: Items) -> float:
    """F1 of what sounds in each frame; label ``notes`` [frames, keys], 0 or 1."""
    scores = []
    for made, item in zip(outputs, items, strict=True):
        sounding, true = made[NOTES][0] > SOUNDS, item["notes"] > 0
        scores.append(2.0 * float((sounding & true).sum()) / max(1, int(sounding.sum() + true.sum())))
    return _mean(scores)


def _first(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return next(iter(outputs.values()))


def _only(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    (array,) = outputs.values()
    return array


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _decoded(scores: np.ndarray) -> np.ndarray:
    best = scores.argmax(-1)
    changes = np.concatenate([[True], best[1:] != best[:-1]])
    codes: np.ndarray = best[changes & (best != 0)]
    return codes


def _codes(item: Mapping[str, Any]) -> list[int]:
    return [int(code) for code in item["codes"] if code >= 0]


def _matched(boxes: Sequence[Any], item: Mapping[str, Any]) -> float:
    """Overlap of an image's true boxes with the best of those found, less for those that are too many."""
    true = [tuple(map(float, row)) for row in item["boxes"] if row[0] >= 0]
    best = [max((_overlap(box, other) for other in boxes), default=0.0) for box in true]
    return sum(best) / max(len(true), len(boxes))


def _cells(rows: np.ndarray) -> list[Any]:
    """Boxes [left, top, right, bottom] of cells that hold a character, of those that overlap the surest alone."""
    grids = []
    for stride in STRIDES:
        cells = np.stack(np.meshgrid(*[np.arange(SCENE // stride)] * 2), -1).reshape(-1, 2)
        grids.append(np.concatenate([cells, np.full((len(cells), 1), stride)], 1))
    grid = np.concatenate(grids)
    centre, size = (rows[:, :2] + grid[:, :2]) * grid[:, 2:], np.exp(rows[:, 2:4]) * grid[:, 2:]
    sure = rows[:, 4] * rows[:, 5]
    boxes: list[Any] = []
    for index in np.argsort(-sure):
        box = (*(centre[index] - size[index] / 2), *(centre[index] + size[index] / 2))
        if sure[index] < SURE or len(boxes) == MOST:
            break
        if all(_overlap(box, other) < TOGETHER for other in boxes):
            boxes.append(box)
    return boxes


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
