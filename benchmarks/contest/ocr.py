"""Tasks of reading text: trained networks that a package ships, and images of known text drawn for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from PIL import Image, ImageDraw

from contest.drawing import font, ink, paper, words, worn
from contest.shipped import network
from contest.task import Arrays, Task, write_task

PACKAGE = "rapidocr==3.10.0"
LINE = (48, 320)
"""Height and width of the recogniser's input."""
FLIPPED = (48, 192)
"""Of the orientation classifier's."""
PAGE = (480, 640)
"""Of the detector's."""
LONGEST = 32
MOST_BOXES = 12


def make_recogniser(task: Task, samples: int, held_out: int) -> None:
    """Lines of text; label ``codes``, the classes of its characters."""
    model = network(PACKAGE, "PP-OCRv6_rec_small.onnx", {"x": (1, 3, *LINE)})
    characters = _characters(model)
    classes = {character: index for index, character in enumerate(characters)}
    name = model.graph.input[0].name

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        codes = np.full((count, LONGEST), -1, np.int32)
        pictures = []
        for row in codes:
            text = words(rng, 4, 20)
            row[: len(text)] = [classes[character] for character in text]
            pictures.append(network_input(line_of(rng, text, LINE)))
        return {name: np.stack(pictures), "codes": codes}

    write_task(task, model, draw(samples, 1), draw(held_out, 2))


def make_orientation(task: Task, samples: int, held_out: int) -> None:
    """Lines of text, half of them upside down; label ``label``, 1 where it is."""
    model = network(PACKAGE, "ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": (1, 3, *FLIPPED)})
    name = model.graph.input[0].name

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        label = rng.integers(0, 2, count)
        lines = [line_of(rng, words(rng, 3, 12), FLIPPED) for _ in label]
        turned = [line.rotate(180) if flip else line for line, flip in zip(lines, label, strict=True)]
        return {name: np.stack([network_input(line) for line in turned]), "label": label}

    write_task(task, model, draw(samples, 3), draw(held_out, 4))


def make_detector(task: Task, samples: int, held_out: int) -> None:
    """Pages with lines of text of several sizes; label ``boxes``, where the lines are."""
    model = network(PACKAGE, "PP-OCRv6_det_small.onnx", {"x": (1, 3, *PAGE)})
    name = model.graph.input[0].name

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        pages, boxes = zip(*(page_of(rng, PAGE) for _ in range(count)), strict=True)
        return {name: np.stack(pages), "boxes": np.stack(boxes)}

    write_task(task, model, draw(samples, 5), draw(held_out, 6))


def _characters(model: onnx.ModelProto) -> list[str]:
    """The recogniser's classes: a blank, what its metadata lists, a space."""
    listed = next(prop.value for prop in model.metadata_props if prop.key == "character")
    return ["", *listed.splitlines(), " "]


def line_of(rng: np.random.Generator, text: str, size: tuple[int, int]) -> Image.Image:
    """``text`` as a detector would cut it out, scaled to ``size`` and filled up at its right as the package does.

    With a width of 0 it is as wide as it gets, and nothing is filled up.
    """
    height, width = size
    letters = int(rng.integers(12, 40))
    face = font(rng, letters)
    left, top, right, bottom = face.getbbox(text)
    margin = int(rng.integers(1, 2 + letters // 6))
    image = Image.new("RGB", (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin), paper(rng))
    ImageDraw.Draw(image).text((margin - left, margin - top), text, ink(rng), face)
    image = worn(rng, image)
    natural = max(1, round(image.width * height / image.height))
    scaled = image.resize((min(width or natural, natural), height))
    filled = Image.new("RGB", (width or natural, height), (127, 127, 127))
    filled.paste(scaled, (0, 0))
    return filled


def page_of(rng: np.random.Generator, page: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A ``page`` of that height and width with lines of text, as the detector takes it; left, top, right and bottom
    of each line, -1 for none."""
    height, width = page
    image = Image.new("RGB", (width, height), paper(rng))
    draw, colour = ImageDraw.Draw(image), ink(rng)
    boxes = np.full((MOST_BOXES, 4), -1, np.float32)
    for box, top in zip(boxes, _tops(rng, height), strict=False):
        size = int(rng.integers(12, 34))
        face, text = font(rng, size), words(rng, 4, 20)
        left = int(rng.integers(8, max(9, width - int(face.getlength(text)) - 8)))
        draw.text((left, top), text, colour, face)
        # As people mark lines: as high as the tallest letters, whether or not they occur.
        box[:] = (left, top, left + face.getlength(text), top + sum(face.getmetrics()))
    return network_input(worn(rng, image)), boxes


def _tops(rng: np.random.Generator, height: int) -> Iterator[int]:
    top = int(rng.integers(4, 40))
    while top < height - 44:
        yield top
        top += int(rng.integers(44, 100))


def network_input(image: Image.Image) -> np.ndarray:
    """Channels of BGR first, from -1 to 1, a batch of one: as the package prepares its images."""
    scaled: np.ndarray = np.asarray(image)[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / 127.5 - 1.0
    return np.ascontiguousarray(scaled[np.newaxis])
