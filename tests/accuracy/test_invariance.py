"""Batch invariance: models of few lines, of which some let a row depend on what is beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from collage_evo.accuracy.invariance import LEAST, ROWS, UNRELATED, Invariance, Movement, measure_invariance
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError
from tests.support.typed import not_none

Feeds = Mapping[str, np.ndarray]
TABLE = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
TABLE[0] *= 2.0  # what pads a text is larger than any word
WEIGHT = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
OPEN = {"input_ids": (-1, -1), "attention_mask": (-1, -1)}


def rounded(x: np.ndarray, axis: int | None) -> np.ndarray:
    """``x`` in steps of 1/15 of the largest number: along ``axis``, or None: of the whole tensor."""
    step = np.abs(x).max(axis=axis, keepdims=True) / 15
    return np.rint(x / step) * step


def encoder(feeds: Feeds, names: Sequence[str], rounds: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """The tokens of a text, and their mean over the mask."""
    mask = feeds["attention_mask"][..., None].astype(np.float32)
    tokens = rounds(TABLE[feeds["input_ids"]]) @ WEIGHT
    outputs = {"tokens": tokens, "pooled": (tokens * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)}
    return [outputs[name] for name in names]


def in_float32(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
    return encoder(feeds, names, lambda x: x)


def by_rows(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
    return encoder(feeds, names, lambda x: rounded(x, -1))


def by_tensor(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
    return encoder(feeds, names, lambda x: rounded(x, None))


def texts(*lengths: int, kept: int | None = None) -> list[Sample]:
    """Texts of these lengths; of each only ``kept`` tokens count."""
    rng, samples = np.random.default_rng(2), []
    for length in lengths:
        ids = rng.integers(1, 50, (1, length))
        mask = (np.arange(length)[None] < (kept or length)).astype(np.int64)
        samples.append(Sample({"input_ids": ids, "attention_mask": mask}, {}, {"tokens": TABLE, "pooled": TABLE}))
    return samples


@pytest.mark.parametrize(
    "samples",
    [texts(3, 5, 9), texts(4, 4, 7, 7), texts(6, 6, 6), texts(12, 12, 12, kept=5)],
    ids=["lengths that differ", "some that do not", "one length", "padded before"],
)
def test_a_row_moves_if_a_scale_is_of_the_whole_tensor_and_not_if_each_row_has_its_own(samples: list[Sample]) -> None:
    float32, rows, tensor = (measure_invariance(run, samples, OPEN) for run in (in_float32, by_rows, by_tensor))
    for found in (float32, rows):
        assert None not in (found.batch, found.padding)
        assert not_none(found.largest) < LEAST
    for moved in (not_none(tensor.batch), not_none(tensor.padding)):
        assert 0.001 < moved.mean <= moved.largest < 0.5
    assert rows.holds(float32)
    assert not tensor.holds(float32)


def test_outputs_are_compared_only_where_the_row_has_them() -> None:
    def writes_into_padding(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
        return [np.where(feeds["attention_mask"] > 0, feeds["input_ids"], 99).astype(np.float32)]

    samples = [Sample(one.feeds, {}, {"tokens": TABLE}) for one in texts(3, 8)]
    assert measure_invariance(writes_into_padding, samples, OPEN).largest == 0.0


def test_an_input_whose_second_size_is_fixed_is_never_padded() -> None:
    def with_voice(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
        assert feeds["voice"].shape[1] == 1
        return in_float32(feeds, names)

    samples = [Sample({**one.feeds, "voice": np.ones((1, 1))}, {}, one.expected) for one in texts(1, 1, 6)]
    found = measure_invariance(with_voice, samples, {**OPEN, "voice": (-1, 1)})
    assert not_none(found.padding).largest < LEAST


def test_what_has_no_open_batch_and_no_mask_of_open_length_is_not_run() -> None:
    def never(feeds: Feeds, names: Sequence[str]) -> list[Any]:
        raise AssertionError

    assert measure_invariance(never, texts(4, 4), {name: (1, 4) for name in OPEN}) == Invariance()
    image = [Sample({"x": np.zeros((1, 3, 8, 40))}, {}, {"y": np.zeros(1)})]
    assert measure_invariance(never, image, {"x": (1, 3, 8, -1)}) == Invariance()
    assert measure_invariance(never, [], OPEN) == Invariance()


def test_a_fixed_batch_with_a_mask_is_padded_only_and_an_open_one_without_is_batched_only() -> None:
    fixed = measure_invariance(by_tensor, texts(3, 8), {name: (1, -1) for name in OPEN})
    assert fixed.batch is None
    assert fixed.padding is not None
    images = [
        Sample({"x": np.random.default_rng(width).standard_normal((1, 3, width))}, {}, {"y": TABLE})
        for width in (5, 9)
    ]
    cut = measure_invariance(lambda feeds, names: [rounded(feeds["x"], None)], images, {"x": (-1, 3, -1)})
    assert cut.batch is not None, "images of two widths are cut to one"
    assert cut.batch.largest > 0.001
    x = [Sample({"x": np.random.default_rng(seed).standard_normal((2, 4))}, {}, {"y": TABLE}) for seed in range(3)]
    found = measure_invariance(lambda feeds, names: [rounded(feeds["x"], None)], x, {"x": (-1, 4)})
    assert found.padding is None
    assert found.batch is not None, "the rows of a sample that is a batch run alone too"
    assert found.batch.largest > 0.001


def test_what_the_model_itself_has_not_is_left_out() -> None:
    def of_one(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
        if len(feeds["input_ids"]) > 1:
            raise InputError("the batch is 1 inside")
        return in_float32(feeds, names)

    answer, float32 = (measure_invariance(run, texts(3, 8), OPEN) for run in (by_tensor, of_one))
    assert float32.batch == Movement(UNRELATED, UNRELATED)
    defined = answer.defined_by(float32)
    assert defined.batch is None
    assert defined.padding == answer.padding
    mixes = Invariance(batch=Movement(0.3, 0.1))
    assert answer.defined_by(mixes) == Invariance(), "the first axis is no batch, and there is no mask"


@pytest.mark.parametrize(("run_s", "rows"), [(0.1, ROWS), (0.8, 3), (10.0, 2)])
def test_of_a_slow_model_fewer_rows_are_measured(run_s: float, rows: int) -> None:
    spent, batches = [0.0], set[int]()

    def run(feeds: Feeds, names: Sequence[str]) -> list[np.ndarray]:
        spent[0] += run_s
        batches.add(len(feeds["input_ids"]))
        return in_float32(feeds, names)

    found = measure_invariance(run, texts(*range(3, 15)), OPEN, clock=lambda: spent[0])
    assert found.batch is not None
    assert batches == {1, rows}
