"""Finds objects on the frames of a video, served by an artifact: prints where they are and how long it took.

    pip install --no-deps ddddocr            # for its trained detector (YOLOX) of characters and small objects
    python examples/detector_on_frames.py [FOLDER_OF_PICTURES]

Shows a session on a stream: frames are read in a thread of their own, and objects are always found on the newest. The
first time, the network is searched on frames that are drawn for it, so that operators may run in int8 and bfloat16
within the budget.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import packaged, served
from PIL import Image, ImageDraw, ImageFont

SIZE, STRIDES = 416, (8, 16, 32)
"""Sides of the network's square input, and of the cells that it looks at."""
SURE, SAME = 0.3, 0.45
"""Least score of an object, and the overlap from which on two are one."""


def detect(frame: Image.Image, session: Any) -> np.ndarray:
    """Left, top, right, bottom and score of each object, a row each, the surest first."""
    boxes = _boxes(session.run(None, of_frame(frame))[0][0])
    boxes[:, :4] *= max(frame.size) / SIZE
    return _distinct(boxes[boxes[:, 4] > SURE])


def of_frame(frame: Image.Image) -> dict[str, np.ndarray]:
    """The network's input."""
    scale = SIZE / max(frame.size)
    small = frame.convert("RGB").resize((round(frame.width * scale), round(frame.height * scale)))
    pixels = np.full((SIZE, SIZE, 3), 114, np.float32)
    pixels[: small.height, : small.width] = np.asarray(small)[:, :, ::-1]
    return {"images": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])}


def _boxes(output: np.ndarray) -> np.ndarray:
    """From centres and sizes in units of cells, one cell a row, to pixels of the input."""
    cells = [np.stack(np.meshgrid(*[np.arange(SIZE // s)] * 2), -1).reshape(-1, 2) for s in STRIDES]
    units = np.concatenate([np.full((len(part), 1), s) for part, s in zip(cells, STRIDES, strict=True)])
    centres, half = (output[:, :2] + np.concatenate(cells)) * units, np.exp(output[:, 2:4]) * units / 2
    return np.hstack([centres - half, centres + half, output[:, 4:5] * output[:, 5:].max(axis=1, keepdims=True)])


def _distinct(boxes: np.ndarray) -> np.ndarray:
    """Without those that overlap a surer one."""
    left, kept = boxes[boxes[:, 4].argsort()[::-1]], []
    while len(left):
        kept.append(left[0])
        shared = np.minimum(left[:, 2:4], left[0, 2:4]) - np.maximum(left[:, :2], left[0, :2])
        area, both = np.prod(left[:, 2:4] - left[:, :2], axis=1), np.prod(np.maximum(shared, 0), axis=1)
        left = left[both / (area + area[0] - both) < SAME]
    return np.array(kept).reshape(-1, 5)


def newest(frames: Iterable[Image.Image], every_s: float) -> Iterator[Image.Image]:
    """The latest of ``frames``, which come ``every_s`` seconds: those that nobody had time for are dropped."""
    latest: queue.Queue[Image.Image | None] = queue.Queue(maxsize=1)

    def watch() -> None:
        for frame in frames:
            with contextlib.suppress(queue.Empty):
                latest.get_nowait()
            latest.put(frame)
            time.sleep(every_s)
        latest.put(None)

    threading.Thread(target=watch, daemon=True).start()
    while (frame := latest.get()) is not None:
        yield frame


def sample_frames(count: int, letters: str = "R") -> Iterator[Image.Image]:
    """A letter that moves from left to right, each of ``letters`` for a frame."""
    for index, letter in zip(range(count), itertools.cycle(letters), strict=False):
        frame = Image.new("RGB", (640, 360), "navy")
        place = (40 + index * 480 // count, 120)
        ImageDraw.Draw(frame).text(place, letter, "white", ImageFont.load_default(size=96))
        yield frame


def samples() -> Iterator[dict[str, np.ndarray]]:
    """Frames for the search."""
    return map(of_frame, sample_frames(40, "ABCDEFGHKMNPRSTXYZ"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="?", type=Path, help="a folder of frames; by default some are drawn")
    parser.add_argument("--run", type=Path, default=Path("runs/detector"), help="where the artifact is kept")
    parser.add_argument("--effort", default="quick")
    args = parser.parse_args()
    data = f"{Path(__file__).absolute()}:samples"
    session = served(lambda: packaged("ddddocr", "common_det.onnx"), args.run, data=data, effort=args.effort)
    frames = map(Image.open, sorted(args.pictures.iterdir())) if args.pictures else sample_frames(20)
    for frame in newest(frames, every_s=0.02):
        began = time.perf_counter()
        boxes = detect(frame, session)
        text = ", ".join(f"({left:.0f}, {top:.0f}) to ({right:.0f}, {low:.0f})" for left, top, right, low, _ in boxes)
        print(f"{(time.perf_counter() - began) * 1e3:5.1f} ms: {text or 'nothing'}")


if __name__ == "__main__":
    main()
