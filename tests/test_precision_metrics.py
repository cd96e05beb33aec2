"""The metrics that ``benchmarks/precision.py`` judges by."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

METRICS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "precision_metrics.py"))


def _steps(*classes: int) -> dict[str, np.ndarray]:
    """A recogniser's output whose best class of each step is as given."""
    return {"scores": np.eye(10, dtype=np.float32)[list(classes)][np.newaxis]}


def _map(*boxes: tuple[int, int, int, int]) -> dict[str, np.ndarray]:
    """A detector's output that marks these boxes (left, top, right, bottom)."""
    found = np.zeros((1, 1, 100, 200), np.float32)
    for left, top, right, bottom in boxes:
        found[0, 0, top:bottom, left:right] = 1.0
    return {"map": found}


def _boxes(*boxes: tuple[float, float, float, float]) -> dict[str, np.ndarray]:
    rows = np.full((4, 4), -1, np.float32)
    rows[: len(boxes)] = boxes
    return {"boxes": rows}


@pytest.mark.parametrize(
    ("classes", "codes", "matches"),
    [
        ((0, 3, 3, 0, 3, 5, 0), (3, 3, 5), True),
        ((3, 3, 3), (3,), True),
        ((0, 0, 0), (), True),
        ((0, 3, 5, 5), (3, 5, 5), False),
        ((3, 0, 4), (3,), False),
    ],
)
def test_lines_are_decoded_without_blanks_and_repetitions(
    classes: tuple[int, ...], codes: tuple[int, ...], matches: bool
) -> None:
    item = {"codes": np.array([*codes, -1, -1])}
    assert METRICS["exact_match"]([_steps(*classes)], [item]) == float(matches)


def test_a_score_is_the_mean_over_samples() -> None:
    items = [{"codes": np.array([3, -1])}, {"codes": np.array([4, -1])}]
    assert METRICS["exact_match"]([_steps(3), _steps(3)], items) == 0.5


def test_marks_grow_to_the_boxes_they_stand_for() -> None:
    # 20 by 60 pixels grow by 1.6 times area over circumference on each side.
    more = 20 * 60 * 1.6 / 160
    exact = _boxes((50 - more, 40 - more, 110 + more, 60 + more))
    assert METRICS["box_iou"]([_map((50, 40, 110, 60))], [exact]) == pytest.approx(1.0)


def test_boxes_that_are_missed_or_made_up_count_against() -> None:
    more = 20 * 60 * 1.6 / 160
    true = (50 - more, 40 - more, 110 + more, 60 + more)
    two = _boxes(true, (150, 2, 190, 12))
    assert METRICS["box_iou"]([_map((50, 40, 110, 60))], [two]) == pytest.approx(0.5)
    made_up = _map((50, 40, 110, 60), (150, 5, 190, 15))
    assert METRICS["box_iou"]([made_up], [_boxes(true)]) == pytest.approx(0.5)
    assert METRICS["box_iou"]([_map()], [_boxes(true)]) == 0.0


def test_text_is_scored_by_position() -> None:
    made = {"scores": np.eye(5, dtype=np.float32)[[1, 2, 3, 4]][np.newaxis]}
    assert METRICS["next_character"]([made], [{"next": np.array([1, 2, 0, 4])}]) == 0.75
    assert METRICS["top1"]([{"scores": np.array([[0.1, 0.7, 0.2]])}], [{"label": np.array(1)}]) == 1.0
