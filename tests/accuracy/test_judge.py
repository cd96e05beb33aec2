"""Errors over many samples: of the whole set or of the worst, or the drop of a person's metric, with an interval."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.judge import Judgement, judge, judge_closely, run_samples
from collage_evo.accuracy.losses import Pairs
from collage_evo.accuracy.metric import Metric, RelativeError
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError
from collage_evo.graph.ir.values import Values
from collage_evo.statistics import net_share_interval
from tests.support.typed import not_none

ACCURACY = """
import numpy as np

def accuracy(outputs, items):
    return np.mean([np.argmax(o["p"]) == i["label"] for o, i in zip(outputs, items)])

def f1(outputs, items):
    if len(items) < 10:
        raise ValueError("too few")
    return accuracy(outputs, items) ** 2

def cosine(outputs, items):
    return np.mean([1.0 - abs(o["p"][0] - 3.5) for o in outputs])

def first(outputs, items):
    return np.mean([o["p"][0] for o in outputs])

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


def interval(found: Judgement) -> tuple[float, float]:
    return not_none(found.low), not_none(found.high)


def relative(pairs: Pairs) -> float:
    return judge(pairs, RelativeError())


def test_the_error_is_that_of_the_whole_set_or_of_the_worst_sample() -> None:
    pairs = [pair(np.array([3.5, 4.5]), np.array([3.5, 4.5])), pair(np.array([0.3, 0.4]), np.array([0.6, 0.8]))]
    assert relative(pairs) == pytest.approx(0.5 / math.hypot(3.5, 4.5, 0.3, 0.4))
    assert judge(pairs, RelativeError(), "worst") == pytest.approx(1.0)
    found = judge_closely(pairs, RelativeError(), "worst")
    assert (found.error, found.worst, found.singles) == (found.worst, pytest.approx(1.0), pytest.approx((0.0, 1.0)))
    assert found.together == pytest.approx(relative(pairs))
    assert (found.beyond(0.5), found.beyond(1.5)) == (1, 0)


def test_the_worst_output_counts_in_units_of_its_own() -> None:
    small, large = np.array([1e-3, 2e-3]), np.array([1e30, 2e30])
    sample = Sample({}, {}, {"small": small, "large": large})
    assert relative([(sample, {"small": small * 1.1, "large": large})]) == pytest.approx(0.1)
    assert relative([(sample, {"small": small, "large": large[:1]})]) == math.inf


LABELS, DIGITS, PIXELS = np.arange(990, 1000), np.arange(10), np.arange(200, dtype=np.uint8)
ZEROS = np.zeros(4, np.float32)


def one_other(array: np.ndarray) -> np.ndarray:
    """``array`` with the next value in place of its sixth."""
    return np.where(array == array[5], array[6], array)


@pytest.mark.parametrize(
    ("expected", "given", "error"),
    [
        (LABELS, one_other(LABELS), 0.1),
        (LABELS > 995, one_other(LABELS) > 995, 0.1),
        (LABELS, LABELS[:9], math.inf),
        *((DIGITS.astype(kind), one_other(DIGITS).astype(kind), 0.1) for kind in ("f4", "f8", "u1", "i2")),
        *((DIGITS.astype(kind), (DIGITS + 1e-3).astype(kind), 0.0) for kind in ("f4", "f8")),  # rounding
        (ZEROS, ZEROS + np.float32(0.1), math.inf),
    ],
)
def test_what_only_ever_is_a_whole_number_is_a_label_which_is_right_or_wrong(
    expected: np.ndarray, given: np.ndarray, error: float
) -> None:
    assert relative([pair(expected, given)]) == pytest.approx(error)


def test_labels_are_counted_over_all_samples_and_pixels_are_none() -> None:
    single = [pair(right, made) for right, made in zip(LABELS[:, None], one_other(LABELS)[:, None], strict=True)]
    assert relative(single) == pytest.approx(0.1)
    floats = DIGITS.astype(np.float32)
    assert 0 < relative([pair(floats, one_other(floats)), pair(floats + 0.5, floats + 0.5)]) < 0.1
    assert 0 < relative([pair(PIXELS, one_other(PIXELS))]) < 1e-3, "the nearer the better"


def test_the_interval_covers_the_error_and_narrows_with_samples() -> None:
    rng = np.random.default_rng(0)

    def width(count: int) -> float:
        true = rng.standard_normal((count, 4))
        found = judge_closely([pair(t, t + 0.1 * rng.standard_normal(4)) for t in true], RelativeError())
        low, high = interval(found)
        assert low < found.error < high
        return high - low

    assert width(400) < width(25)
    single = judge_closely([pair(np.array([0.5, 1.5]), np.array([0.5, 1.5]))], RelativeError())
    assert single.low is None, "one sample has no interval"


def test_a_count_has_its_exact_interval_and_the_share_of_samples_that_changed(tmp_path: Path) -> None:
    found = judge_closely(classified(right=97, wrong=3), metric(tmp_path, "accuracy"))
    assert (found.score, found.reference_score) == (0.97, 1.0)
    assert found.error == pytest.approx(0.03)
    assert found.changed == pytest.approx(0.03)
    assert (found.low, found.high) == net_share_interval(lost=3, won=0, samples=100)


def test_one_of_a_hundred_samples_keeps_a_budget_of_a_hundredth(tmp_path: Path) -> None:
    wrong = np.array([0.0, 1.0])
    assert 0.89 - 0.88 > 0.01, "in floats"
    pairs, counted = [*classified(right=88, wrong=1), *[pair(wrong, wrong)] * 11], metric(tmp_path, "accuracy")
    assert judge(pairs, counted) == judge_closely(pairs, counted).error == 0.01
    assert judge([pair(np.array([0.89]), np.array([0.88]))], metric(tmp_path, "first"), "worst") == 0.01


def test_no_sample_moved_does_not_mean_that_none_would(tmp_path: Path) -> None:
    found = judge_closely(classified(right=50, wrong=0), metric(tmp_path, "accuracy"))
    assert found.error == found.changed == 0.0
    assert 0.05 < interval(found)[1] < 0.11


def test_a_drop_that_is_no_count_has_the_interval_of_its_own_spread(tmp_path: Path) -> None:
    moved = 1.3e-5 + 4e-6 * np.random.default_rng(0).standard_normal(100)
    pairs = [pair(np.array([3.5, 1.0]), np.array([3.5 + one, 1.0])) for one in moved]
    found = judge_closely(pairs, metric(tmp_path, "cosine"))
    low, high = interval(found)
    assert found.changed is None
    assert low < moved.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * moved.std() / 10, rel=0.2)


def test_a_metric_that_is_no_mean_is_resampled(tmp_path: Path) -> None:
    found = judge_closely(classified(right=90, wrong=10), metric(tmp_path, "f1"))
    low, high = interval(found)
    assert found.changed is None
    assert found.error == pytest.approx(1 - 0.81)
    assert low < found.error < high
    with pytest.raises(InputError, match=r"accuracy\.over=worst needs a metric of single samples, which .*f1 is"):
        judge(classified(9, 1), metric(tmp_path, "f1"), "worst")


def test_the_reference_s_own_score_need_not_be_asked_for_again(tmp_path: Path) -> None:
    counted = "def f(outputs, items):\n    open('calls', 'a').write('x')\n    return 1.0\n"
    (tmp_path / "counted.py").write_text(counted.replace("calls", str(tmp_path / "calls")))
    judge(classified(3, 0), load_metric(f"{tmp_path / 'counted.py'}:f"), reference=1.0)
    assert (tmp_path / "calls").read_text() == "x"


def test_what_a_metric_does_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    for name, message in (
        ("broken", "broken gave nan: it has to give a finite number"),
        ("f1", "f1 raised ValueError: too few"),
        ("leaves", "leaves raised SystemExit: 3"),
    ):
        with pytest.raises(InputError, match=message):
            judge(classified(2, 0), metric(tmp_path, name))


def test_who_takes_too_long_over_the_samples_is_stopped() -> None:
    samples = [sample for sample, _ in classified(3, 0)]
    with pytest.raises(TimeoutError, match="1 of 3 samples took more than"):
        run_samples(lambda feeds, names: [np.zeros(2)], samples, seconds=-1.0)


def test_the_chance_that_other_samples_break_a_budget_is_told_by_the_upper_half_of_the_interval() -> None:
    found = Judgement(0.02, 100, 0.019, 0.03)
    assert found.chance_over(0.02) == pytest.approx(0.5)
    assert found.chance_over(0.03) == pytest.approx(0.025)
    assert Judgement(0.02, 100).chance_over(0.03) == 0.0
    assert Judgement(0.02, 100).chance_over(0.01) == 1.0
    worst = Judgement(0.02, 2, 0.019, 0.03, singles=(0.01, 0.04), over="worst")
    assert (worst.chance_over(0.03), worst.chance_over(0.05)) == (1.0, 0.0), (
        "of the worst sample there is no interval"
    )
