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
from collage_evo.run.samples import model_file, profiles_of, read_samples

ROOT = Path(__file__).parents[3]


def model(*shape: int | str, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    net = Builder("images")
    return net.model(net.op("Identity", net.input("x", shape, dtype)))


def test_a_model_gets_images_of_its_size() -> None:
    feeds = read_feeds(IMAGES, model(2, 3, 24, 40))
    assert len(feeds) == COUNT == 48
    assert {(tuple(one), one["x"].shape, one["x"].dtype.name) for one in feeds} == {
        (("x",), (2, 3, 24, 40), "float32")
    }


def test_an_open_batch_is_one_and_open_sizes_come_from_the_shapes_of_the_run() -> None:
    assert read_feeds(IMAGES, model("n", 3, 16, 16))[0]["x"].shape == (1, 3, 16, 16)
    shapes = {"x": [4, 3, 20, 12]}
    assert read_feeds(IMAGES, model("n", 3, "h", "w"), shapes)[0]["x"].shape == (4, 3, 20, 12)


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


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (model(1, 4), r"one float32 input \[N, 3, H, W\]; this one takes x"),
        (model(1, 3, 8, 8, dtype=TensorProto.UINT8), "one float32 input"),
        (model(1, 1, 8, 8), "has 3 channels; input 'x' takes 1"),
        (model(1, 3, "h", "w"), r"--shapes 'x: \[1, 3, 224, 224\]'"),
    ],
)
def test_other_models_are_refused_in_one_line(given: onnx.ModelProto, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        read_feeds(IMAGES, given)
    assert "\n" not in str(refused.value)


def test_a_model_with_two_inputs_or_none_is_refused() -> None:
    net = Builder("two")
    x, y = net.input("x", (1, 3, 8, 8)), net.input("y", (1, 3, 8, 8))
    with pytest.raises(InputError, match="this one takes x, y"):
        read_feeds(IMAGES, net.model(net.op("Add", x, y)))
    net = Builder("none")
    with pytest.raises(InputError, match="this one takes no input"):
        read_feeds(IMAGES, net.model(net.op("Identity", net.const(np.ones(2, np.float32)))))


def test_an_unknown_built_in_source_names_the_one_that_exists() -> None:
    with pytest.raises(InputError, match="no data builtin:photos: the only built-in data are builtin:images"):
        read_feeds("builtin:photos", model(1, 3, 8, 8))


def test_the_quick_start_calibrates_int8_on_them() -> None:
    config = load_config(str(ROOT / "configs/quickstart.yaml"))
    assert config.data.source == IMAGES
    assert not config.accuracy.int8_without_data
    file = model_file(config)
    (shapes,) = profiles_of(config, file)
    samples = read_samples(config, shapes, file)
    assert len(samples) == COUNT
    assert {array.shape for one in samples for array in one.feeds.values()} == {(1, 3, 224, 224)}
