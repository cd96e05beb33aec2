"""Dimensions of open inputs: what a range is, and the shapes that are drawn from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collage_evo.codec import from_json, to_json
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes

BATCH, SEQUENCE = Dimension(1, 8, "batch"), Dimension(1, 512, "sequence")
TALL = Dimension(32, 640, step=32)
ENCODER = OpenShapes({"ids": (BATCH, SEQUENCE), "mask": (BATCH, SEQUENCE), "scale": (Dimension(3, 3),)})


def test_a_size_is_a_number_or_a_range() -> None:
    assert Dimension.read(7) == Dimension(7, 7)
    assert Dimension.read("1..512") == Dimension(1, 512)
    assert Dimension.read("32..640/32") == TALL
    assert [str(one) for one in (SEQUENCE, Dimension(7, 7), TALL)] == ["1..512", "7", "32..640/32"]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("512..1", "512..1 is no range: .* as 1..512$"),
        ("0..512", "0..512 is no range: .* at least 1, as 1..512$"),
        ("0..0", "as 1..1$"),
        ("32..600/32", "32..600/32 does not end at a step of 32 from 32"),
        ("32..64/0", "does not end at a step of 0"),
        ("1-512", "'1-512' is no size: write a number, or a range as 1..512"),
        ("1..10**9", "is no size"),
        (-1, "-1 is no size"),
        (True, "True is no size"),
        ([1, 2], "is no size"),
        (None, "is no size"),
        (f"1..{10**30}", "is no size"),
    ],
)
def test_what_is_none_is_refused_with_what_to_write(size: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dimension.read(size)


def test_axes_of_one_dimension_have_one_size() -> None:
    assert ENCODER.varying == {"batch": BATCH, "sequence": SEQUENCE}
    assert ENCODER.smallest == {"ids": [1, 1], "mask": [1, 1], "scale": [3]}
    assert ENCODER.largest == {"ids": [8, 512], "mask": [8, 512], "scale": [3]}
    assert ENCODER.shapes({"sequence": 4})["mask"] == [1, 4]
    assert ENCODER.sizes == {"ids": [None, None], "mask": [None, None], "scale": [3]}
    for shapes in ENCODER.drawn(40, seed=0):
        assert shapes["ids"] == shapes["mask"]
        assert ENCODER.outside(shapes) == ""


def test_shapes_outside_are_named_with_the_range() -> None:
    assert ENCODER.outside({"ids": [1, 600], "mask": [1, 600], "scale": [3]}) == (
        "ids [1, 600], outside of sequence: 1..512"
    )
    assert ENCODER.outside({"ids": [1, 6], "mask": [1, 6], "scale": [4]}) == "scale [4], outside of scale: 3"


def test_each_doubling_is_drawn_equally_often_and_by_the_seed() -> None:
    drawn = [shapes["ids"][1] for shapes in ENCODER.drawn(90, seed=0)]
    octaves = np.bincount(np.log2(drawn).astype(int))
    assert set(octaves[:9]) == {10}, "from 1, 2, 4 ... 256 on: 9 doublings of 90 samples"
    assert ENCODER.drawn(90, seed=0) == ENCODER.drawn(90, seed=0) != ENCODER.drawn(90, seed=1)
    batches = [shapes["ids"][0] for shapes in ENCODER.drawn(90, seed=0)]
    assert set(batches) == set(range(1, 9))
    assert abs(np.corrcoef(np.log(drawn), np.log(batches))[0, 1]) < 0.3


def test_multiples_are_drawn_as_such() -> None:
    images = OpenShapes({"x": (replace(TALL, name="height"),)})
    assert [TALL.at(size) for size in (1, 32, 95.9, 96, 700)] == [32, 32, 64, 96, 640]
    assert {shapes["x"][0] for shapes in images.drawn(300, seed=0)} == set(range(32, 641, 32))
    assert images.outside({"x": [100]}) == "x [100], outside of height: 32..640/32"


def test_they_are_kept_as_json() -> None:
    assert from_json(to_json(ENCODER), OpenShapes) == ENCODER
