"""Tasks of single characters: trained networks that packages ship, and characters drawn askew for them."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from contest.drawing import font, ink, paper
from contest.photographs import photograph
from contest.shipped import network
from contest.task import Arrays, Task, write_task

LABELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Classes of the recogniser; the blank comes after them."""
SIGN = (60, 160)
"""Height and width of the recogniser's input."""
SCENE = (416, 416)
"""Of the detector's."""
LENGTH = 4
LEGIBLE = [index for index, label in enumerate(LABELS) if label not in "0O1IQ"]
MOST_BOXES = 8


def make_signs(task: Task, samples: int, held_out: int) -> None:
    """Four characters askew on white; label ``codes``, their classes."""
    model = network("captcha-whisperer==0.1.0", "captcha_crnn.onnx", {"image": (1, 3, *SIGN)})

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        codes = rng.choice(LEGIBLE, (count, LENGTH))
        images = [_network_input(_sign(rng, [LABELS[code] for code in row])) for row in codes]
        return {"image": np.stack(images), "codes": codes}

    write_task(task, model, draw(samples, 41), draw(held_out, 42))


def make_characters(task: Task, samples: int, held_out: int) -> None:
    """Characters strewn over photographs; label ``boxes``, where they are."""
    model = network("ddddocr==1.6.1", "common_det.onnx", {})

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        scenes, boxes = zip(*(_scene(rng) for _ in range(count)), strict=True)
        return {"images": np.stack(scenes), "boxes": np.stack(boxes)}

    write_task(task, model, draw(samples, 43), draw(held_out, 44))


def _sign(rng: np.random.Generator, characters: list[str]) -> Image.Image:
    height, width = SIGN
    image = Image.new("RGB", (width, height), (255, 255, 255))
    step = (width - 16) / len(characters)
    for place, character in enumerate(characters):
        glyph = _glyph(rng, character, int(rng.integers(38, 50)), 20.0)
        left = int(8 + place * step + (step - glyph.width) / 2)
        image.paste(glyph, (left, int((height - glyph.height) / 2 + rng.integers(-3, 4))), glyph)
    return image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.0, 1.0))))


def _scene(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    height, width = SCENE
    image = photograph(rng, width, height)
    boxes = np.full((MOST_BOXES, 4), -1, np.float32)
    cells = rng.permutation(9)[: int(rng.integers(3, MOST_BOXES + 1))]
    for box, cell in zip(boxes, cells, strict=False):
        glyph = _glyph(rng, LABELS[int(rng.integers(0, len(LABELS)))], int(rng.integers(50, 90)), 40.0)
        left = int(cell % 3 * width / 3 + rng.integers(0, max(1, int(width / 3 - glyph.width))))
        top = int(cell // 3 * height / 3 + rng.integers(0, max(1, int(height / 3 - glyph.height))))
        image.paste(glyph, (left, top), glyph)
        box[:] = (left, top, left + glyph.width, top + glyph.height)
    return _network_input(image), boxes


def _glyph(rng: np.random.Generator, character: str, size: int, degrees: float) -> Image.Image:
    """A turned character of one colour on nothing, as large as what is seen of it."""
    image = Image.new("RGBA", (3 * size, 3 * size), (0, 0, 0, 0))
    light = rng.random() < 0.2
    ImageDraw.Draw(image).text((size, size), character, (paper(rng) if light else ink(rng)), font(rng, size))
    turned = image.rotate(float(rng.uniform(-degrees, degrees)), Image.Resampling.BILINEAR)
    return turned.crop(turned.getbbox())


def _network_input(image: Image.Image) -> np.ndarray:
    """Channels of BGR first, from 0 to 255, a batch of one: as both packages prepare their images."""
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1].transpose(2, 0, 1)[np.newaxis].astype(np.float32))
