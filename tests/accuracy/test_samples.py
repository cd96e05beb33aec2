"""Samples are split once, by a seed, into parts that share none; and come back from a file as they went in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collage_evo.accuracy.samples import Sample, Sizes, how_to_hold_out, read_samples, split, write_samples

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


@pytest.mark.parametrize("needed", [3, 60, 165, 700])
def test_the_advice_holds_out_as_many_as_are_needed_and_no_fewer_samples_do(needed: int) -> None:
    sizes = Sizes(300, 128, 300)
    advice = how_to_hold_out(needed, sizes, given=4)
    total = int(advice.split()[1])
    enough = replace(sizes, held_out=max(needed, 300))
    assert len(split(range(total), enough, seed=0).held_out) == needed
    assert len(split(range(total - 1), enough, seed=0).held_out) < needed
    assert ("set -s accuracy.held_out=700" in advice) == (needed == 700)


def test_who_gave_enough_is_told_to_hold_out_more_of_them() -> None:
    assert how_to_hold_out(165, Sizes(300, 128, 64), given=597) == "set -s accuracy.held_out=165"


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
