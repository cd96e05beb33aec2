"""Errors over many samples: of the whole set, or the drop of a person's metric, with an interval over samples."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from collage_evo.accuracy.judge import judge, judge_closely, run_samples
from collage_evo.accuracy.metric import Metric, load_metric
from collage_evo.accuracy.samples import Sample, Values
from collage_evo.errors import InputError

ACCURACY = """
import numpy as np

def accuracy(outputs, items):
    return np.mean([np.argmax(o["p"]) == i["label"] for o, i in zip(outputs, items)])

def f1(outputs, items):
    if len(items) < 10:
        raise ValueError("too few")
    return accuracy(outputs, items) ** 2

def broken(outputs, items):
    return float("nan")

def leaves(outputs, items):
    raise SystemExit(3)
"""


def metric(folder: Path, name: str) -> Metric:
    (folder / "metrics.py").write_text(ACCURACY)
    return load_metric(f"{folder / 'metrics.py'}:{name}")


def pair(expected: np.ndarray, given: np.ndarray, label: int = 0) -> tuple[Sample, Values]:
    return Sample({"x": np.zeros(1)}, {"label": np.array(label)}, {"p": expected}), {"p": given}


def classified(right: int, wrong: int) -> list[tuple[Sample, Values]]:
    """The reference has every label right; what is judged has ``wrong`` of them wrong."""
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    return [pair(one, one)] * right + [pair(one, other)] * wrong


def test_the_error_is_that_of_the_whole_set() -> None:
    pairs = [pair(np.array([3.0, 4.0]), np.array([3.0, 4.0])), pair(np.array([0.0, 0.0]), np.array([0.3, 0.4]))]
    assert judge(pairs).error == pytest.approx(0.1), "though the second alone is infinitely wrong"
    assert judge(pairs).max_abs == pytest.approx(0.4)


def test_the_worst_output_counts_in_units_of_its_own() -> None:
    small, large = np.full(2, 1e-3), np.full(2, 1e30)
    sample = Sample({}, {}, {"small": small, "large": large})
    assert judge([(sample, {"small": small * 1.1, "large": large})]).error == pytest.approx(0.1)
    assert judge([(sample, {"small": small, "large": large[:1]})]).error == math.inf


def test_a_label_is_right_or_wrong_however_near_it_is() -> None:
    labels = np.arange(990, 1000)
    near = np.where(labels == 995, 996, labels)
    assert judge([pair(labels, near)]).error == pytest.approx(0.1)
    assert judge([pair(labels > 995, near > 995)]).error == pytest.approx(0.1)
    assert judge([pair(labels, labels[:9])]).error == math.inf
    single = [pair(label, given) for label, given in zip(labels[:, None], near[:, None], strict=True)]
    assert judge(single).error == pytest.approx(0.1), "the share, also over samples of one label each"
    pixels = labels.astype(np.uint16)
    assert 0 < judge([pair(pixels, near.astype(np.uint16))]).error < 1e-3, "the nearer the better"


def test_the_interval_covers_the_error_and_narrows_with_samples() -> None:
    rng = np.random.default_rng(0)

    def width(count: int) -> float:
        true = rng.standard_normal((count, 4))
        found = judge_closely([pair(t, t + 0.1 * rng.standard_normal(4)) for t in true])
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.error < found.high
        return found.high - found.low

    assert width(400) < width(25)
    assert judge_closely([pair(np.ones(2), np.ones(2))]).low is None, "one sample has no interval"


def test_a_metric_is_judged_by_its_drop_and_by_how_many_samples_moved(tmp_path: Path) -> None:
    found = judge_closely(classified(right=97, wrong=3), metric(tmp_path, "accuracy"))
    assert (found.score, found.reference_score) == (0.97, 1.0)
    assert found.error == pytest.approx(0.03)
    assert found.spread == pytest.approx(0.03)
    reach = 1.96 * math.sqrt(0.03 / 100)
    assert (found.low, found.high) == (pytest.approx(0.03 - reach), pytest.approx(0.03 + reach))


def test_no_sample_moved_does_not_mean_that_none_would(tmp_path: Path) -> None:
    found = judge_closely(classified(right=50, wrong=0), metric(tmp_path, "accuracy"))
    assert found.error == found.spread == 0.0
    assert found.high == pytest.approx(1.96 / 50)


def test_a_metric_that_is_no_mean_is_resampled(tmp_path: Path) -> None:
    found = judge_closely(classified(right=90, wrong=10), metric(tmp_path, "f1"))
    assert found.spread is None
    assert found.low is not None
    assert found.high is not None
    assert found.error == pytest.approx(1 - 0.81)
    assert found.low < found.error < found.high


def test_what_a_metric_does_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="broken gave nan: it has to give a finite number"):
        judge(classified(2, 0), metric(tmp_path, "broken"))
    with pytest.raises(InputError, match=r"f1 raised ValueError: too few"):
        judge(classified(2, 0), metric(tmp_path, "f1"))
    with pytest.raises(InputError, match="leaves raised SystemExit: 3"):
        judge(classified(2, 0), metric(tmp_path, "leaves"))


def test_who_takes_too_long_over_the_samples_is_stopped() -> None:
    samples = [sample for sample, _ in classified(3, 0)]
    with pytest.raises(TimeoutError, match="1 of 3 samples took more than"):
        run_samples(lambda feeds, names: [np.zeros(2)], samples, seconds=-1.0)
