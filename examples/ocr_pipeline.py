"""Reads the text of a page: one network finds the lines, another reads each, both from artifacts of this project.

    pip install --no-deps rapidocr           # for its trained networks (PP-OCR); the rest of it is not needed
    python examples/ocr_pipeline.py page.png

Shows how a program of several networks is served: make an artifact of each, and call ``run`` as before. ``read``
takes sessions of ONNX Runtime just as well. The first time, each network is searched on pages that are drawn for it,
so that operators may run in int8 and bfloat16 within the budget.
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import packaged, served
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

PAGE, LINE = (320, 448), (48, 320)
"""Height and width that the networks are given."""
MEAN, SPREAD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


Values = dict[str, np.ndarray]
WORDS = ["Invoice", "total", "Platform", "Departure", "Receipt", "paid", "Order", "number", "due", "Street", "Gate"]


def read(page: Image.Image, detector: Any, recogniser: Any) -> list[str]:
    """The lines of text on ``page``, from top to bottom."""
    page = page.convert("RGB").resize(PAGE[::-1])
    letters = ["", *recogniser.get_modelmeta().custom_metadata_map["character"].split("\n"), " "]
    return [_read_line(page.crop(box), recogniser, letters) for box in find_lines(page, detector)]


def find_lines(page: Image.Image, detector: Any) -> Iterator[tuple[int, int, int, int]]:
    """Left, top, right and bottom of each line."""
    (text,) = detector.run(None, of_page(page))
    for rows, columns in ndimage.find_objects(ndimage.label(text[0, 0] > 0.3)[0]):
        room = (rows.stop - rows.start) * 2 // 3  # the network marks the middle of letters
        yield columns.start - room, rows.start - room, columns.stop + room, rows.stop + room


def _read_line(line: Image.Image, recogniser: Any, letters: list[str]) -> str:
    best = recogniser.run(None, of_line(line))[0][0].argmax(axis=1)
    new = np.append(True, best[1:] != best[:-1])  # CTC: repetitions are one letter, class 0 is none
    return "".join(letters[index] for index in best[new & (best > 0)]).strip()


def of_page(page: Image.Image) -> Values:
    """The detector's input."""
    pixels = np.asarray(page)[:, :, ::-1].astype(np.float32)  # the networks were trained on blue, green, red
    return _input((pixels / 255 - MEAN) / SPREAD)


def of_line(line: Image.Image) -> Values:
    """The recogniser's input."""
    height, width = LINE
    line = line.resize((min(width, round(line.width * height / line.height)), height))
    pixels = np.zeros((height, width, 3), np.float32)
    pixels[:, : line.width] = np.asarray(line)[:, :, ::-1] / np.float32(127.5) - 1
    return _input(pixels)


def _input(pixels: np.ndarray) -> Values:
    return {"x": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)}


def sample_page(*lines: str, size: int = 30) -> Image.Image:
    page = Image.new("RGB", PAGE[::-1], "white")
    for row, text in enumerate(lines or ("Invoice 2026-1107", "total 1,284.50 EUR", "Platform 9")):
        ImageDraw.Draw(page).text((30, 45 + 90 * row), text, "black", ImageFont.load_default(size=size))
    return page


def texts(lines: int, pages: int = 40) -> Iterator[list[str]]:
    """So many lines for each of so many pages, the same each time."""
    draw = random.Random(0)
    for _ in range(pages):
        yield [f"{draw.choice(WORDS)} {draw.randrange(10**draw.randint(1, 5)):,}" for _ in range(lines)]


def pages() -> Iterator[Values]:
    """Samples for the detector."""
    return (of_page(sample_page(*lines, size=22 + index % 3 * 5)) for index, lines in enumerate(texts(3)))


def lines() -> Iterator[Values]:
    """Samples for the recogniser."""
    return (of_line(sample_page(*line).crop((24, 38, 330, 88))) for line in texts(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", help="a picture; by default one that is drawn")
    parser.add_argument("--runs", type=Path, default=Path("runs/ocr"), help="where the artifacts are kept")
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    sessions = []
    here = Path(__file__).absolute()
    for file, (height, width), samples in (
        ("PP-OCRv6_det_small.onnx", PAGE, pages),
        ("PP-OCRv6_rec_small.onnx", LINE, lines),
    ):
        shapes, model = {"x": [1, 3, height, width]}, functools.partial(packaged, "rapidocr", file)
        settings = {"shapes": shapes, "data": f"{here}:{samples.__name__}", "effort": args.effort}
        sessions.append(served(model, args.runs / Path(file).stem, **settings))
    began = time.perf_counter()
    found = read(Image.open(args.page) if args.page else sample_page(), *sessions)
    print(*found, f"read in {(time.perf_counter() - began) * 1e3:.0f} ms", sep="\n")


if __name__ == "__main__":
    main()
