"""rapidocr's pipeline as one side of a comparison: pages of text, and a process that reads them on one engine.

Takes artifacts in place of the package's own sessions, or the name of one of its engines; gives for each page what
was read and how long that and each call of a network took.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIZES = (
    (320, 240), (480, 160), (640, 480), (300, 700), (800, 600), (1024, 256), (720, 720), (1280, 720), (600, 1000),
    (960, 540),
)  # fmt: skip
"""Width and height of each page."""
WORDS = (
    "Everything that runs was measured first", "Invoice 2026-1107", "total 1,284.50 EUR", "Platform 9", "No. 42",
    "The quick brown fox jumps over the lazy dog", "keep dry", "serial X7-440-B", "Monday to Friday 8:30 - 17:00",
)  # fmt: skip
MODELS = {
    "text_det": "PP-OCRv6_det_small.onnx",
    "text_cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    "text_rec": "PP-OCRv6_rec_small.onnx",
}
"""The pipeline's parts that hold a session each, and their files in the package."""
ENGINE_KEYS = {
    "onnxruntime": "EngineConfig.onnxruntime.intra_op_num_threads",
    "openvino": "EngineConfig.openvino.inference_num_threads",
}
"""Where the package is told how many threads each of its engines may use."""


@dataclass(frozen=True)
class Side:
    """What the networks run in: an engine of the package, or artifacts by part where there are any."""

    engine: str = "onnxruntime"
    artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One call of a network: the input's shape, wall and processor time, whether it ran in a fall-back."""

    part: str
    shape: tuple[int, ...]
    ms: float
    cpu_ms: float
    fallback: bool


@dataclass(frozen=True)
class Read:
    """What one run over one page gave, and in how many milliseconds: of the clock, and of the process's threads."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    ms: float
    cpu_ms: float
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Kept:
    """What it took to have a pipeline: seconds until it was ready, the process's largest size in MB so far."""

    load_s: float
    peak_mb: float


class Timed:
    """A network's session that notes its calls."""

    def __init__(self, part: str, holder: Any, calls: list[Call]) -> None:
        self._part, self._holder, self._calls = part, holder, calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._holder, name)

    def __call__(self, array: np.ndarray) -> Any:
        begin, cpu = time.perf_counter(), time.process_time()
        made = self._holder(array)
        ms, cpu_ms = (time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3
        program = getattr(self._holder.session, "program", None)
        fallback = program is not None and program.shapes[0] is None
        self._calls.append(Call(self._part, array.shape, ms, cpu_ms, fallback))
        return made


class Reader:
    """The package's pipeline on one side.

    Args:
        side: what its networks run in.
        threads: of each network; with one for each core the package keeps its own default, which is that.
    """

    def __init__(self, side: Side, threads: int) -> None:
        import rapidocr

        logging.disable(logging.WARNING)
        begin = time.perf_counter()
        engine = rapidocr.EngineType(side.engine)
        params: dict[str, Any] = {f"{part}.engine_type": engine for part in ("Det", "Cls", "Rec")}
        if threads < (os.cpu_count() or 1):
            params[ENGINE_KEYS[side.engine]] = threads
        self.pipeline = rapidocr.RapidOCR(params=params)
        self.pipeline(render(320, 240))  # its networks are loaded at their first use
        replace_sessions(self.pipeline, side.artifacts)
        self.load_s = time.perf_counter() - begin
        self._calls: list[Call] = []
        for part in MODELS:
            holder = getattr(self.pipeline, part)
            holder.session = Timed(part, holder.session, self._calls)

    def read(self, page: np.ndarray) -> Read:
        """Read one page."""
        self._calls.clear()
        begin, cpu = time.perf_counter(), time.process_time()
        found = self.pipeline(page)
        ms, cpu_ms = (time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3
        texts, scores = tuple(found.txts or ()), tuple(map(float, found.scores or ()))
        return Read(texts, scores, ms, cpu_ms, tuple(self._calls))


def replace_sessions(pipeline: Any, artifacts: Mapping[str, str]) -> None:
    """The one-line change, once for each network; what the package reads from a session must be there too."""
    import collage_evo

    for part, artifact in artifacts.items():
        holder = getattr(pipeline, part).session
        before = dict(holder.session.get_modelmeta().custom_metadata_map)
        holder.session = collage_evo.load(artifact)
        after = dict(holder.session.get_modelmeta().custom_metadata_map)
        if after != before:
            raise SystemExit(f"{part}: the session's metadata differ from those of the file")


def render(width: int, height: int) -> np.ndarray:
    """Lines of text as large as fits, dark on light, as an array of BGR values."""
    image = Image.new("RGB", (width, height), (250, 250, 245))
    draw = ImageDraw.Draw(image)
    size = max(18, min(width, height) // 12)
    font = ImageFont.load_default(size)
    for place, words in zip(range(size, height - 2 * size, 2 * size), itertools.cycle(WORDS), strict=False):
        kept = words
        while draw.textlength(kept, font) > width - 2 * size:
            kept = kept.rsplit(" ", 1)[0] if " " in kept else kept[:-1]
        draw.text((size, place), kept, (20, 20, 40), font)
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


@contextlib.contextmanager
def reading(side: Side, threads: int) -> Iterator[Connection]:
    """A process on a core for each thread that answers each page with a ``Read``, and None with what it ``Kept``."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(side, threads, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def _serve(side: Side, threads: int, pipe: Connection) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    reader = Reader(side, threads)
    with contextlib.suppress(EOFError):
        while True:
            page = pipe.recv()
            if page is None:
                pipe.send(Kept(reader.load_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
            else:
                pipe.send(reader.read(page))
