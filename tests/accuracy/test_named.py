"""Metrics by name: each against figures worked out by hand, and shown for the outputs that people measure so."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.judge import Judgement, judge, judge_closely
from collage_evo.accuracy.named import NAMED, usual_metrics
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError
from collage_evo.graph.ir.values import Values
from tests.support.typed import not_none

Pair = tuple[Sample, Values]


def pair(expected: object, given: object, label: int | None = None) -> Pair:
    labels = {} if label is None else {"label": np.array(label)}
    right, made = (np.asarray(value, dtype=None if np.asarray(value).dtype.kind in "iu" else np.float32)
                   for value in (expected, given))  # fmt: skip
    return Sample({"x": np.zeros(1)}, labels, {"out": right}), {"out": made}


def judged(name: str, *pairs: Pair) -> Judgement:
    return judge_closely(list(pairs), NAMED[name])


def error(name: str, *pairs: Pair) -> float:
    return judge(list(pairs), NAMED[name])


def one_hot(*codes: int, classes: int = 4) -> np.ndarray:
    """Scores [1, steps, classes] whose largest are ``codes``."""
    return np.eye(classes, dtype=np.float32)[None, list(codes)]


def test_agreement_is_the_share_of_samples_whose_largest_output_stays() -> None:
    same, other = pair([[0.2, 0.8]], [[0.4, 0.6]]), pair([[0.2, 0.8]], [[0.6, 0.4]])
    found = judged("agreement", same, same, same, other)
    assert (found.score, found.reference_score, found.error, found.changed) == (0.75, 1.0, 0.25, 0.25)
    assert 0.0 < not_none(found.low) < 0.01, "exact: Clopper and Pearson give 0.0063 for one of four"
    assert found.high == pytest.approx(0.8059, abs=1e-4)
    assert error("agreement", pair(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))) == 0.25
    right, made = np.zeros((2, 1, 2, 2, 2))
    right[0, 1] = made[0, 1] = 1.0
    made[0, 0, 1, 1] = 2.0
    assert error("agreement", pair(right, made)) == 0.25, "classes of images lie along the second axis"


def test_cosine_is_of_rows_and_keeps_small_differences() -> None:
    found = judged("cosine", pair([[3.0, 4.0]], [[6.0, 8.0]]), pair([[1.0, 0.0]], [[0.0, 1.0]]))
    assert (found.score, found.error) == (pytest.approx(0.5), pytest.approx(0.5))
    angle = 1e-3
    turned = pair([[1.0, 0.0]], [[math.cos(angle), math.sin(angle)]])
    assert error("cosine", turned) == pytest.approx(angle**2 / 2, rel=1e-3)
    assert error("cosine", pair([[0.0, 0.0]], [[0.0, 0.0]])) == 0.0
    assert error("cosine", pair([[0.0, 0.0]], [[0.0, 0.1]])) == 1.0
    assert error("cosine", pair(np.eye(2)[None], np.array([[[1.0, 0.0], [1.0, 0.0]]]))) == pytest.approx(0.5)


def test_psnr_is_in_decibels_of_the_image_s_range_and_its_error_is_the_noise() -> None:
    image = np.linspace(0.0, 2.0, 4 * 16 * 16).reshape(1, 4, 16, 16)
    found = judged("psnr", pair(image, image + 0.02))
    assert found.error == pytest.approx(0.01, rel=1e-4)
    assert found.score == pytest.approx(40.0, rel=1e-4)
    assert judged("psnr", pair(image, image)).score is None, "no noise has no decibels"
    pixels = np.arange(16, dtype=np.uint8)
    assert error("psnr", pair(pixels, pixels + np.uint8(1))) == pytest.approx(1 / 255)


def test_text_is_read_greedily_without_repeats_and_blanks() -> None:
    read = one_hot(0, 1, 1, 0, 1, 2, 0, 0)
    assert error("text", pair(read, one_hot(1, 0, 0, 0, 1, 1, 2, 0))) == 0.0, "both say 1 1 2"
    assert error("text", pair(read, one_hot(0, 1, 1, 1, 1, 2, 0, 0))) == 1.0, "1 2"
    last = one_hot(3, 1, 3, 3, 1, 2, 3, 3)
    assert error("text", pair(last, one_hot(1, 1, 3, 1, 3, 2, 3, 3))) == 0.0, "the blank may be the last class"
    steps_first = read.transpose(1, 0, 2)
    assert error("text", pair(steps_first, steps_first * 2)) == 0.0
    assert error("text", pair(np.concatenate([read, read]), np.concatenate([read, last]))) == 0.5
    assert error("text", pair(np.array([4, 5, 6]), np.array([4, 5]))) == 1.0, "codes that are read already"


def test_the_classes_of_a_text_may_lie_along_another_axis() -> None:
    read, later = one_hot(0, 1, 1, 0, 2), one_hot(1, 0, 1, 1, 2)
    first, other = (scores.transpose(0, 2, 1) for scores in (read, later))
    assert judge([pair(first, other)], load_metric("text@1")) == 1.0, "1 2 and 1 1 2"
    assert judge([pair(first, one_hot(1, 0, 0, 2, 2).transpose(0, 2, 1))], load_metric("text@1")) == 0.0
    with pytest.raises(
        InputError, match="text@3 needs an output of scores, of two or three axes, with classes along axis 3"
    ):
        load_metric("text@3").reference([pair(first, first)[0]])


def test_an_exact_match_is_of_every_step_and_of_texts_of_any_length() -> None:
    same, blank = pair(one_hot(1, 2, 0), 2 * one_hot(1, 2, 0)), pair(one_hot(1, 1, 2, 0), one_hot(1, 0, 2, 0))
    batch = pair(np.concatenate([one_hot(1, 2)] * 2), np.concatenate([one_hot(1, 2), one_hot(2, 2)]))
    found = judged("exact_match", same, blank, pair(np.array([4, 5, 6, 7]), np.array([4, 5, 6, 7])))
    assert (found.error, found.changed) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert found.low is not None
    assert error("text", blank) == 0.0, "a text is the same without its blanks"
    assert error("exact_match", batch) == 0.5


def test_the_least_cosine_is_that_of_the_worst_sample_whatever_its_length() -> None:
    def turned(steps: int, angle: float) -> Pair:
        tokens, other = np.tile([1.0, 0.0], (1, steps, 1)), [math.cos(angle), math.sin(angle)]
        return pair(tokens, np.tile(other, (1, steps, 1)))

    found = judge_closely([turned(3, 0.0), turned(5, 0.2), turned(9, 0.1)], NAMED["cosine"], "worst")
    assert found.error == found.worst == pytest.approx(1.0 - math.cos(0.2))
    assert found.beyond(0.01) == 1


def test_top_k_is_the_share_of_labels_among_the_largest_and_may_rise() -> None:
    scores = [[0.1, 0.2, 0.3, 0.4]]
    lost, won = pair(scores, [scores[0][::-1]], 3), pair(scores, [scores[0][::-1]], 0)
    kept = pair(scores, scores, 3)
    found = judged("top1", lost, won, kept, kept)
    assert (found.score, found.reference_score, found.error, found.changed) == (0.75, 0.75, 0.0, 0.5)
    assert judged("top1", lost, kept).error == 0.5
    assert judged("top5", lost, kept).error == 0.0


def test_what_is_not_finite_is_wrong() -> None:
    for name in ("agreement", "cosine", "psnr", "text", "exact_match"):
        assert error(name, pair(one_hot(1, 2, 3), np.full((1, 3, 4), np.nan))) == math.inf, name
        assert error(name, pair(one_hot(1, 2, 3), one_hot(1, 2))) == math.inf, name


@pytest.mark.parametrize(
    ("name", "pairs", "told"),
    [
        ("top1", [pair([[0.1, 0.9]], [[0.1, 0.9]])], "top1 needs labels: one array of whole numbers"),
        ("top1", [pair([[0.1, 0.9]], [[0.1, 0.9]], 2)], "a label has to be a class from 0 to 1 for each of"),
        ("top5", [pair(np.zeros((1, 3, 8, 8)), np.zeros((1, 3, 8, 8)), 2)], "top5 needs one output of scores"),
        ("agreement", [pair([[0.5]], [[0.5]])], "agreement needs an output of scores or of whole numbers"),
        ("text", [pair([[0.5]], [[0.5]])], r"text needs an output of scores, \[batch, steps, classes\]"),
    ],
)
def test_outputs_and_labels_that_do_not_fit_are_told_in_one_line(name: str, pairs: list[Pair], told: str) -> None:
    with pytest.raises(InputError, match=told):
        NAMED[name].reference([sample for sample, _ in pairs])


RNG = np.random.default_rng(0)
PROBABILITIES = np.exp(RNG.standard_normal((1, 20)))
PROBABILITIES /= PROBABILITIES.sum()
UNIT = RNG.standard_normal((1, 384))
UNIT /= np.linalg.norm(UNIT)


@pytest.mark.parametrize(
    ("output", "label", "expected"),
    [
        (PROBABILITIES, None, ["agreement"]),
        (np.log(PROBABILITIES), 3, ["agreement", "top1", "top5"]),
        (10 * RNG.standard_normal((1, 20)), None, ["agreement", "cosine"]),
        (UNIT, None, ["cosine"]),
        (one_hot(0, 1, 2), None, ["agreement", "text"]),
        (RNG.standard_normal((1, 3, 32, 32)), None, ["psnr"]),
        (np.append(10 * RNG.standard_normal((1, 19)), [[np.nan]], axis=1), None, ["agreement", "cosine"]),
        (RNG.standard_normal((1, 1)), None, []),
        (RNG.standard_normal((50, 4)), None, []),
    ],
)
def test_a_metric_is_shown_where_people_measure_so(
    output: np.ndarray, label: int | None, expected: list[str]
) -> None:
    sample, given = pair(output, output, label)
    assert [metric.name for metric in usual_metrics([sample])] == expected
    names = {quality.name for quality in judge_closely([(sample, given)], NAMED["psnr"]).other_metrics}
    assert names == {"", *expected} - {"psnr"}


def test_an_output_that_is_called_an_embedding_has_no_labels() -> None:
    scores = 10 * RNG.standard_normal((1, 32))
    for name, expected in {"logits": ["agreement", "cosine"], "sentence_embedding": ["cosine"]}.items():
        assert [metric.name for metric in usual_metrics([Sample({}, {}, {name: scores})])] == expected


def test_labels_that_are_no_classes_are_those_of_a_person_s_own_metric() -> None:
    windows = [pair(PROBABILITIES, PROBABILITIES, 3), pair(PROBABILITIES, PROBABILITIES, 40)]
    assert [metric.name for metric in usual_metrics([sample for sample, _ in windows])] == ["agreement"]
    assert {quality.name for quality in judge_closely(windows, NAMED["agreement"]).other_metrics} == {""}
