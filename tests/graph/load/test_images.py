"""The data source ``builtin:images``: synthetic images for image models, one clear line for others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.config import load_config
from collage_evo.errors import InputError
from collage_evo.graph.load.data import IMAGES, read_feeds
from collage_evo.models.builder import Builder
from collage_evo.models.images import COUNT, MEAN, STD, draw_images
from collage_evo.run.samples import model_file, read_samples, shapes_of_run

ROOT = Path(__file__).parents[3]


def model(*shape: int | str, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    net = Builder("images")
    return net.model(net.op("Identity", net.input("x", shape, dtype)))


@pytest.mark.parametrize(
    ("declared", "shapes", "drawn"),
    [
        ((2, 3, 24, 40), None, (2, 3, 24, 40)),
        (("n", 3, 16, 16), None, (1, 3, 16, 16)),
        (("n", 3, "h", "w"), {"x": [4, 3, 20, 12]}, (4, 3, 20, 12)),
    ],
)
def test_a_model_gets_images_of_its_size(
    declared: tuple[int | str, ...], shapes: dict[str, list[int]] | None, drawn: tuple[int, ...]
) -> None:
    feeds = read_feeds(IMAGES, model(*declared), shapes)
    assert len(feeds) == COUNT == 48
    assert {(tuple(one), one["x"].shape, one["x"].dtype.name) for one in feeds} == {(("x",), drawn, "float32")}


def test_images_are_the_same_each_time_and_differ_from_each_other() -> None:
    first, again = (np.stack(list(draw_images(32, 32, batch=2, count=4))) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first.reshape(8, -1), axis=0)) == 8
    assert not np.array_equal(first, np.stack(list(draw_images(32, 32, batch=2, count=4, seed=1))))


def test_images_are_normalised_pixels_that_are_smooth_as_photographs_are() -> None:
    images = np.concatenate(list(draw_images(64, 64)))
    pixels = images * np.reshape(STD, (3, 1, 1)) + np.reshape(MEAN, (3, 1, 1))
    assert -1e-6 <= pixels.min() < 0.05
    assert 0.95 < pixels.max() <= 1 + 1e-6
    near, whole = np.diff(pixels, axis=-1).std(), pixels.std()
    assert near < 0.5 * whole  # of independent pixels it is 1.4 times as much


def added() -> onnx.ModelProto:
    net = Builder("two")
    return net.model(net.op("Add", *(net.input(name, (1, 3, 8, 8)) for name in "xy")))


def fixed() -> onnx.ModelProto:
    net = Builder("none")
    return net.model(net.op("Identity", net.const(np.ones(2, np.float32))))


@pytest.mark.parametrize(
    ("given", "source", "reason"),
    [
        (model(1, 4), IMAGES, r"one float32 input \[N, 3, H, W\]; this one takes x"),
        (model(1, 3, 8, 8, dtype=TensorProto.UINT8), IMAGES, "one float32 input"),
        (model(1, 1, 8, 8), IMAGES, "has 3 channels; input 'x' takes 1"),
        (model(1, 3, "h", "w"), IMAGES, r"--shapes 'x: \[1, 3, 224, 224\]'"),
        (added(), IMAGES, "this one takes x, y"),
        (fixed(), IMAGES, "this one takes no input"),
        (model(1, 3, 8, 8), "builtin:photos", "no data builtin:photos: the only built-in data are builtin:images"),
    ],
)
def test_other_models_and_sources_are_refused(given: onnx.ModelProto, source: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        read_feeds(source, given)
    assert "\n" not in str(refused.value)


def test_the_quick_start_calibrates_int8_on_them() -> None:
    config = load_config(str(ROOT / "configs/quickstart.yaml"))
    assert config.data.source == IMAGES
    assert not config.accuracy.int8_without_data
    file = model_file(config)
    (shapes,) = shapes_of_run(config, file)[0].profiles
    samples = read_samples(config, shapes, file)
    assert len(samples) == COUNT
    assert {array.shape for one in samples for array in one.feeds.values()} == {(1, 3, 224, 224)}
