"""Samples are split once, by a seed, into parts that share none; and come back from a file as they went in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage_evo.accuracy.samples import Sample, Sizes, read_samples, split, write_samples

SIZES = Sizes(calibration=300, search=32, held_out=300)


@pytest.mark.parametrize("total", [4, 5, 10, 100, 632, 5000])
def test_no_sample_is_in_two_parts_and_none_of_a_small_set_is_left_out(total: int) -> None:
    parts = split(range(total), SIZES, seed=0)
    every = [*parts.calibration, *parts.search, *parts.held_out]
    assert len(every) == len(set(every)) == min(total, 632)
    assert min(len(parts.calibration), len(parts.search), len(parts.held_out)) >= 1
    assert (len(parts.calibration), len(parts.search), len(parts.held_out)) <= (300, 32, 300)
    assert len(parts.held_out) >= len(parts.calibration), "the last word has the most need of samples"


def test_the_seed_says_which_sample_goes_where() -> None:
    assert split(range(100), SIZES, seed=1) == split(range(100), SIZES, seed=1)
    assert split(range(100), SIZES, seed=1).search != split(range(100), SIZES, seed=2).search


@pytest.mark.parametrize("total", [1, 2, 3])
def test_a_few_samples_are_all_of_the_parts(total: int) -> None:
    parts = split(range(total), SIZES, seed=0)
    assert parts.calibration == parts.search == parts.held_out == tuple(range(total))


def test_samples_come_back_from_their_file(tmp_path: Path) -> None:
    samples = (
        Sample({"x": np.ones(2)}, {"y": np.array(3)}, {"out": [np.zeros(1), np.array(["a"])]}),
        Sample({"x": np.zeros(2)}),
    )
    write_samples(tmp_path / "s.npz", samples)
    first, second = read_samples(tmp_path / "s.npz")
    assert first.labels["y"] == 3
    assert first.expected["out"][1].tolist() == ["a"]
    assert set(first.item) == {"x", "y"}
    assert (second.labels, second.expected) == ({}, {})
    assert not (tmp_path / "s.tmp").exists()
