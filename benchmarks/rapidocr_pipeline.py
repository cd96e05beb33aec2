"""A package's whole pipeline with this project's sessions in place of its own: same text out, time before and after.

    python benchmarks/rapidocr_pipeline.py FOLDER [--threads 1] [--profiles 6] [--seconds 20] [--rounds 5] [-s ...]

rapidocr 3.10 (installed beside this project) reads rendered text on ten pages of different sizes: a detector, a
classifier of orientation and a recogniser, each fed whatever shapes a page leads to. First the pipeline is watched:
where its time goes, by network and shape. Shapes that recur and take most of it become profiles, at least one of each
network; the tool makes an artifact of each, and all other shapes run in its fall-back. Then three sides read the
pages in turns, each in its own process on the same cores with the same number of threads: the package as it comes
(ONNX Runtime), the package told to use OpenVINO, and ``session = collage_evo.load(...)`` in place of its sessions.

Times are medians over rounds, of the clock and of the processor; the latter count what the process's own threads
did, also while others use the cores. With as many threads as there are cores the package keeps its own default.
Figures of the first pass, when all shapes are new, stand apart. Ends with 1 if our sessions give some other text.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ocr_reader import MODELS, SIZES, Call, Kept, Read, Side, reading, render

from collage_evo.answer.sequential import Ratio
from collage_evo.runtime.artifact import read_artifact
from collage_evo.target.processor import this_machine
from collage_evo.target.slots import usable_cores

BEFORE, AFTER = "onnxruntime", "collage_evo"
Shape = tuple[int, ...]
Profiles = Mapping[str, Sequence[Shape]]
Reads = Mapping[str, Sequence[Sequence[Read]]]
"""``reads[side][page]``: a read for each round, the first one apart."""


def main() -> int:
    args = _arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    _tell_machine(args.threads)
    pages = [render(*size) for size in SIZES]
    artifacts = {part: args.folder / part / "best.collage" for part in MODELS}
    missing = [part for part, artifact in artifacts.items() if args.again or not artifact.exists()]
    if missing:
        asked = worthwhile(watch(pages, args), args.profiles)
        for part in missing:
            make_artifact(part, asked[part], args)
    for part, artifact in artifacts.items():
        _tell_artifact(part, artifact)
    sides = {
        BEFORE: Side(),
        "openvino": Side("openvino"),
        AFTER: Side(artifacts={part: str(artifact) for part, artifact in artifacts.items()}),
    }
    reads, kept = race(sides, pages, args)
    _tell_parts(reads)
    _tell_whole(reads, kept)
    return _tell_pages(reads)


def watch(pages: Sequence[np.ndarray], args: argparse.Namespace) -> list[Call]:
    """The calls of the package's own sessions over all pages, once everything was met before."""
    with reading(Side(), args.threads) as reader:
        reads: list[Read] = []
        for page in (*pages, *pages):
            reader.send(page)
            reads.append(reader.recv())
    calls = [call for read in reads[len(pages) :] for call in read.calls]
    for part in MODELS:
        own = [call for call in calls if call.part == part]
        spent, shapes = sum(call.cpu_ms for call in own), len({call.shape for call in own})
        print(f"{part}: {len(own)} calls in {shapes} shapes, {spent:.0f} ms of the processor", flush=True)
    return calls


def worthwhile(calls: Sequence[Call], number: int) -> Profiles:
    """The ``number`` shapes most worth a profile, at least one of each network.

    Those that were met again come first, since a shape met once may not come back; then what takes most of the time.
    """
    met = Counter((call.part, call.shape) for call in calls)
    spent: dict[tuple[str, Shape], float] = dict.fromkeys(met, 0.0)
    for call in calls:
        spent[call.part, call.shape] += call.cpu_ms
    order = sorted(met, key=lambda key: (met[key] == 1, -spent[key]))
    firsts = [next(key for key in order if key[0] == part) for part in MODELS]
    chosen = (firsts + [key for key in order if key not in firsts])[: max(number, len(firsts))]
    return {part: [shape for own, shape in chosen if own == part] for part in MODELS}


def make_artifact(part: str, shapes: Sequence[Shape], args: argparse.Namespace) -> None:
    """``best.collage`` with a profile for each shape of the input, made by the command line as a person would."""
    import onnx
    import rapidocr

    model = Path(rapidocr.__file__).parent / "models" / MODELS[part]
    given = onnx.load(model).graph.input[0].name
    profiles = json.dumps({given: [list(shape) for shape in shapes]})
    settings = (f"model.shapes={profiles}", f"search.seconds={args.seconds}", f"target.threads={args.threads}")
    said = itertools.chain(*(("-s", setting) for setting in (*settings, *args.set)))
    command = [sys.executable, "-m", "collage_evo", "run", str(model), "--out", str(args.folder / part)]
    done = subprocess.run([*command, "--overwrite", *said])
    if done.returncode:
        raise SystemExit(f"no artifact of {model} for {profiles}")


def race(
    sides: Mapping[str, Side], pages: Sequence[np.ndarray], args: argparse.Namespace
) -> tuple[Reads, Mapping[str, Kept]]:
    """Let the sides read all pages ``args.rounds`` times and once before, page by page; who begins changes."""
    reads: dict[str, list[list[Read]]] = {side: [[] for _ in pages] for side in sides}
    kept = {}
    names = list(sides)
    with contextlib.ExitStack() as stack:
        pipes = {name: stack.enter_context(reading(side, args.threads)) for name, side in sides.items()}
        for turn in range(args.rounds + 1):
            for index, page in enumerate(pages):
                shift = (turn + index) % len(names)
                for name in (*names[shift:], *names[:shift]):
                    pipes[name].send(page)
                    reads[name][index].append(pipes[name].recv())
        for name, pipe in pipes.items():
            pipe.send(None)
            kept[name] = pipe.recv()
    return reads, kept


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profiles", type=int, default=6, help="shapes with a placement, of all networks together")
    parser.add_argument("--seconds", type=float, default=20, help="of search for each profile")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="make artifacts anew that are there")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="as for the tool")
    return parser.parse_args()


def _tell_machine(threads: int) -> None:
    packages = ("rapidocr", "onnxruntime", "openvino", "numpy")
    told = ", ".join(f"{name} {version(name)}" for name in packages)
    cores = f"{threads} of {len(usable_cores())} cores"
    print(f"{this_machine().cpu}, {cores}, Python {platform.python_version()}, {told}", flush=True)


def _tell_artifact(part: str, path: Path) -> None:
    artifact = read_artifact(path)
    for profile in artifact.profiles:
        backends = [piece.backend for piece in profile.program.pieces]
        shape, named = list(profile.program.shapes[0] or ()), ", ".join(sorted(set(backends)))
        print(f"{part} {shape}: regions {len(backends)}, of {named}")
    if artifact.fallback:
        print(f"{part} in any other shape: {artifact.fallback.pieces[0].backend}", flush=True)


def _tell_parts(reads: Reads) -> None:
    """Where the time goes: processor time of one pass over all pages, by network."""
    names = " ".join(f"{side:>12}" for side in reads)
    print(f"\n{'ms of the processor':>22} {'calls':>6} {'in profiles':>12} {names}")
    spent = {side: [_cpu_ms(pages, part) for part in MODELS] for side, pages in reads.items()}
    for index, part in enumerate(MODELS):
        ours = [call for page in reads[AFTER] for call in page[-1].calls if call.part == part]
        served = sum(not call.fallback for call in ours)
        told = " ".join(f"{np.median(parts[index][1:]):12.0f}" for parts in spent.values())
        print(f"{part:>22} {len(ours):6d} {served:12d} {told}")
    rest = [_passes(pages, lambda read: read.cpu_ms) - np.sum(spent[side], axis=0) for side, pages in reads.items()]
    print(f"{'outside the networks':>22} {'':6} {'':12} " + " ".join(f"{np.median(ms[1:]):12.0f}" for ms in rest))


def _cpu_ms(pages: Sequence[Sequence[Read]], part: str) -> np.ndarray:
    """A network's processor time in each pass over all pages."""
    return _passes(pages, lambda read: sum(call.cpu_ms for call in read.calls if call.part == part))


def _passes(pages: Sequence[Sequence[Read]], value: Callable[[Read], float]) -> np.ndarray:
    """The sum of ``value`` over all pages, for each round."""
    sums: np.ndarray = np.array([[value(read) for read in page] for page in pages]).sum(axis=0)
    return sums


def _tell_whole(reads: Reads, kept: Mapping[str, Kept]) -> None:
    """Each side's passes over all pages, beside the package as it comes."""
    print(f"\n{'all pages':>12} {'first s':>8} {'s':>7} {'cpu s':>7} {'before/after by the clock':>28} "
          f"{'by the processor':>24} {'ready s':>8} {'peak MB':>8}")  # fmt: skip
    clock = {side: _passes(reads[side], lambda read: read.ms) for side in reads}
    spent = {side: _passes(reads[side], lambda read: read.cpu_ms) for side in reads}
    for side in reads:
        gains = [_format_ratio(times[BEFORE][1:] / times[side][1:]) for times in (clock, spent)]
        print(
            f"{side:>12} {clock[side][0] / 1e3:8.2f} {np.median(clock[side][1:]) / 1e3:7.2f} "
            f"{np.median(spent[side][1:]) / 1e3:7.2f} {gains[0]:>28} {gains[1]:>24} {kept[side].load_s:8.1f} "
            f"{kept[side].peak_mb:8.0f}"
        )


def _format_ratio(ratios: np.ndarray) -> str:
    return str(Ratio.of(np.log(ratios).tolist()))


def _tell_pages(reads: Reads) -> int:
    """A row for each page; 1 if our sessions read another text than the package's own."""
    names = " ".join(f"{side + ' ms':>15}" for side in reads)
    print(f"\n{'page':>10} lines {names} {'cpu before/after':>17}  text   score differs by  text of openvino")
    differing = 0
    for index, (width, height) in enumerate(SIZES):
        mine = {side: pages[index] for side, pages in reads.items()}
        told = " ".join(f"{np.median([read.ms for read in page[1:]]):15.0f}" for page in mine.values())
        before, after = (np.median([read.cpu_ms for read in mine[side][1:]]) for side in (BEFORE, AFTER))
        texts = {side: {read.texts for read in page} for side, page in mine.items()}
        differing += texts[AFTER] != texts[BEFORE]
        pairs = zip(mine[BEFORE][-1].scores, mine[AFTER][-1].scores, strict=False)
        gap = max((abs(a - b) for a, b in pairs), default=0.0)
        lines = len(mine[BEFORE][-1].texts)
        print(
            f"{width:5d}x{height:4d} {lines:5d} {told} {before / after:17.2f}  {_same(texts[AFTER], texts[BEFORE])}"
            f"  {gap:16.1e}  {_same(texts['openvino'], texts[BEFORE])}"
        )
    print(f"{differing} of {len(SIZES)} pages with another text")
    return 1 if differing else 0


def _same(texts: set[tuple[str, ...]], expected: set[tuple[str, ...]]) -> str:
    return "same " if texts == expected else "OTHER"


if __name__ == "__main__":
    sys.exit(main())
