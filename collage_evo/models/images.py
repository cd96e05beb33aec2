"""Synthetic images for calibration: seeded scenes of gradients, shapes and textures, normalised as for ImageNet.

Like photographs, and unlike random pixels, they have large smooth areas, sharp edges and a spectrum that falls with
frequency. They serve a first run without data; ranges for a trained network come from its own data.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

COUNT = 48
"""Default number of images of a run."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's red, green and blue, for values from 0 to 1."""
_SHAPES = (3, 9)
_OCTAVES = 6


def draw_images(height: int, width: int, batch: int = 1, count: int = COUNT, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield ``count`` float32 arrays [batch, 3, height, width]; equal arguments give equal images."""
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (MEAN, STD))
    for index in range(count):
        scenes = (_scene(np.random.default_rng([seed, index, place]), height, width) for place in range(batch))
        yield np.stack([(scene - mean) / std for scene in scenes]).astype(np.float32)


def _scene(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """One image [3, height, width] from 0 to 1: a background, shapes in front of it, light, and a sensor's noise."""
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    image = _blend(_gradient(rng, y, x), _colour(rng), _colour(rng))
    image += rng.uniform(0.05, 0.3) * _texture(rng, height, width)
    for _ in range(rng.integers(*_SHAPES)):
        surface = _blend(_gradient(rng, y, x), _colour(rng), _colour(rng))
        surface += rng.uniform(0.0, 0.25) * _texture(rng, height, width)
        image = np.where(_outline(rng, y, x), surface, image)
    light = 1.0 - rng.uniform(0.0, 0.4) * (y**2 + x**2) / 2
    image = image * light * rng.uniform(0.6, 1.2) + rng.normal(0.0, 0.01, image.shape)
    return np.asarray(np.clip(image, 0.0, 1.0))


def _colour(rng: np.random.Generator) -> np.ndarray:
    """A colour [3]: its channels vary together, as light does, and a little each."""
    return np.asarray(np.clip(rng.uniform(0.1, 0.9) + rng.normal(0.0, 0.15, 3), 0.0, 1.0))


def _blend(weight: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray(first[:, None, None] * (1 - weight) + second[:, None, None] * weight)


def _gradient(rng: np.random.Generator, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """From 0 to 1 along a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    return np.asarray(0.5 + 0.5 * np.clip(np.cos(angle) * x + np.sin(angle) * y, -1, 1))


def _outline(rng: np.random.Generator, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A rotated ellipse or rectangle, sometimes only its stripes, as truth values."""
    angle, (down, right) = rng.uniform(0, np.pi), rng.uniform(-0.9, 0.9, 2)
    u = (np.cos(angle) * (x - right) + np.sin(angle) * (y - down)) / rng.uniform(0.1, 0.7)
    v = (np.cos(angle) * (y - down) - np.sin(angle) * (x - right)) / rng.uniform(0.1, 0.7)
    inside = u**2 + v**2 < 1 if rng.random() < 0.5 else (abs(u) < 1) & (abs(v) < 1)
    return np.asarray(inside & (np.sin(rng.uniform(6, 30) * u) > 0) if rng.random() < 0.25 else inside)


def _texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Noise of several octaves, each twice as fine and half as strong as the one before, about -1 to 1."""
    noise = np.zeros((height, width))
    for octave in range(_OCTAVES):
        cells = 2 ** (octave + 1)
        grid = rng.uniform(-1, 1, (cells + 1, cells + 1))
        noise += 0.5**octave * (_interpolation(height, cells) @ grid @ _interpolation(width, cells).T)
    return noise


def _interpolation(size: int, cells: int) -> np.ndarray:
    """Matrix [size, cells + 1] of linear interpolation between the corners of ``cells``."""
    place = np.linspace(0, cells, size)[:, None]
    return np.asarray(np.clip(1 - abs(place - np.arange(cells + 1)), 0, None))
