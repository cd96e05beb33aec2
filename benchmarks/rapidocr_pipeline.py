"""A package's whole pipeline with this project's sessions in place of its own: same text out, time before and after.

    python benchmarks/rapidocr_pipeline.py FOLDER [--threads 1] [--seconds 20] [--profiles 4] [--rounds 5]

rapidocr 3.10 (installed beside this project) reads rendered text on ten images of different sizes: a detector, a
classifier of orientation and a recogniser, each fed whatever shapes the image leads to.
The shapes are recorded first; for the most frequent ones of each network the tool makes an artifact with as many
profiles, and all others go to its fall-back. Then the package runs as it comes, and with
``session = collage_evo.load(...)`` instead, each in its own process on the same cores, in turns. ``--itself`` lets
the package race itself: what is left of the difference is noise. Ends with 1 if some text differs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from collage_evo.runtime.timing import bootstrap_interval

SIZES = (
    (320, 240), (480, 160), (640, 480), (300, 700), (800, 600), (1024, 256), (720, 720), (1280, 720), (600, 1000),
    (960, 540),
)  # fmt: skip
"""Width and height of each image."""
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
Shapes = Mapping[str, Counter[tuple[int, ...]]]


@dataclass(frozen=True)
class Read:
    """What one run over one image gave, and in how many milliseconds."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    ms: float


class Counting:
    """A session that counts the shapes it is given."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.shapes: Counter[tuple[int, ...]] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        self.shapes[next(iter(feeds.values())).shape] += 1
        return list(self.session.run(names, feeds))


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


def open_pipeline(threads: int) -> Any:
    """The package's pipeline as it comes, on so many threads."""
    import rapidocr

    logging.disable(logging.WARNING)
    # Its own default is one thread of each core; both sides get the same.
    pipeline = rapidocr.RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": threads})
    pipeline(render(320, 240))  # its networks are loaded at their first use
    return pipeline


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


def record_shapes(pipeline: Any, images: Sequence[np.ndarray]) -> Shapes:
    """The shapes that each network is given."""
    counting = {}
    for part in MODELS:
        holder = getattr(pipeline, part).session
        holder.session = counting[part] = Counting(holder.session)
    for image in images:
        pipeline(image)
    for part, session in counting.items():
        getattr(pipeline, part).session.session = session.session
    return {part: session.shapes for part, session in counting.items()}


def make_artifact(
    model: Path, given: str, shapes: Sequence[Sequence[int]], run: Path, args: argparse.Namespace
) -> None:
    """``run/best.collage`` with a profile for each shape of the input, made by the command line as a person would."""
    profiles = json.dumps({given: [list(shape) for shape in shapes]})
    settings = (f"model.shapes={profiles}", f"search.seconds={args.seconds}", f"target.threads={args.threads}")
    command = [sys.executable, "-m", "collage_evo", "run", str(model), "--out", str(run), "--overwrite"]
    done = subprocess.run([*command, *itertools.chain(*(("-s", setting) for setting in (*settings, *args.set)))])
    if done.returncode:
        raise SystemExit(f"no artifact of {model} for {profiles}")


def main() -> int:
    args = _arguments()
    folder: Path = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    images = [render(*size) for size in SIZES]
    pipeline = open_pipeline(args.threads)
    shapes = record_shapes(pipeline, images)
    _tell_shapes(shapes, args.profiles)
    artifacts = {} if args.itself else _artifacts(pipeline, shapes, args)
    reads = _race(images, artifacts, args)
    return _report(reads, args.rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="of search for each network")
    parser.add_argument("--profiles", type=int, default=4, help="shapes of each network that get a placement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="make artifacts anew that are there")
    parser.add_argument("--itself", action="store_true", help="the package against itself")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for the tool")
    return parser.parse_args()


def _artifacts(pipeline: Any, shapes: Shapes, args: argparse.Namespace) -> dict[str, str]:
    """For each part an artifact, made where it is not there yet."""
    package = Path(sys.modules["rapidocr"].__file__ or "").parent / "models"
    for part, file in MODELS.items():
        run = args.folder / part
        if args.again or not (run / "best.collage").exists():
            frequent = [shape for shape, _ in shapes[part].most_common(args.profiles)]
            given = getattr(pipeline, part).session.session.get_inputs()[0].name
            make_artifact(package / file, given, frequent, run, args)
    return {part: str(args.folder / part / "best.collage") for part in MODELS}


def _tell_shapes(shapes: Shapes, profiles: int) -> None:
    for part, count in shapes.items():
        served = sum(number for _, number in count.most_common(profiles))
        print(f"{part}: {count.total()} calls in {len(count)} shapes, {served} in the {profiles} most frequent")


def _race(
    images: Sequence[np.ndarray], artifacts: Mapping[str, str], args: argparse.Namespace
) -> dict[str, list[list[Read]]]:
    """``reads[side][image]``: a read for each round."""
    reads: dict[str, list[list[Read]]] = {side: [[] for _ in images] for side in ("before", "after")}
    with _side({}, args.threads) as before, _side(artifacts, args.threads) as after:
        pipes = {"before": before, "after": after}
        for turn in range(args.rounds + 1):
            for index, image in enumerate(images):
                for side in sorted(pipes, reverse=bool((turn + index) % 2)):
                    pipes[side].send(image)
                    read: Read = pipes[side].recv()
                    if turn:  # the first round warms up
                        reads[side][index].append(read)
    return reads


@contextlib.contextmanager
def _side(artifacts: Mapping[str, str], threads: int) -> Iterator[Connection]:
    """A process that reads images, with the package's own sessions where there are no artifacts."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(artifacts, threads, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def _serve(artifacts: Mapping[str, str], threads: int, pipe: Connection) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    pipeline = open_pipeline(threads)
    replace_sessions(pipeline, artifacts)
    with contextlib.suppress(EOFError):
        while True:
            image = pipe.recv()
            begin = time.perf_counter()
            found = pipeline(image)
            ms = (time.perf_counter() - begin) * 1e3
            pipe.send(Read(tuple(found.txts or ()), tuple(map(float, found.scores or ())), ms))


def _report(reads: Mapping[str, Sequence[Sequence[Read]]], rounds: int) -> int:
    """A row for each image, then the whole; 1 if a text differs."""
    print(f"\n{'image':>10} lines  before ms   after ms  before/after  text  largest difference of a score")
    differing, totals = 0, np.zeros((2, rounds))
    for index, (width, height) in enumerate(SIZES):
        before, after = reads["before"][index], reads["after"][index]
        times = np.array([[read.ms for read in side] for side in (before, after)])
        totals += times
        same = {read.texts for read in before} == {read.texts for read in after}
        differing += not same
        gap = max((abs(a - b) for a, b in zip(before[0].scores, after[0].scores, strict=False)), default=0.0)
        medians = np.median(times, axis=1)
        print(
            f"{width:5d}x{height:4d} {len(before[0].texts):5d} {medians[0]:10.1f} {medians[1]:10.1f} "
            f"{medians[0] / medians[1]:13.3f}  {'same' if same else 'OTHER'}  {gap:.1e}"
        )
    ratios = totals[0] / totals[1]
    low, high = bootstrap_interval([float(ratio) for ratio in ratios])
    interval = f"{np.median(ratios):.3f} [{low:.3f}, {high:.3f}]"
    print(f"all images: before / after {interval}, {differing} with another text")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
