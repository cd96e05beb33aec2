"""Thread pools of several libraries in one process: the runtime's policy against the libraries' own settings.

    python benchmarks/threads.py threads.json [--rounds 7] [--pairs onnxruntime+ncnn ...]

A chain of twelve 3x3 convolutions with Relu on 64 channels of 28 x 28 on two threads, cut into regions of one
convolution and Relu, two backends in turn (or one backend alone, uncut). The runtime (sleep soon, workers on cores
of their own) against a plain loop over the same regions in which every library keeps its defaults; once without
rest, and once resting 0.1 s after every 20 runs, as between requests. Each in a process of its own, on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from turns import median_ms, ratio, take_turns

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.fitness.compiler import Compiler, PieceCache
from collage_evo.fitness.slots import usable_cores
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.artifact import write_artifact
from collage_evo.testing.models import chain

BACKENDS = ("onnxruntime", "openvino", "ncnn", "tvm")
THREADS, BLOCKS = 2, 12


def write(directory: Path, backends: tuple[str, ...], pieces: Path) -> Path:
    """The artifact of the chain on ``backends`` in turn."""
    target = Target("cpu", THREADS, ())
    graph = build_graph(chain(BLOCKS, channels=64, size=28))
    regions = [Region(0b11 << 2 * i, backends[i % len(backends)], "default") for i in range(BLOCKS)]
    if len(backends) == 1:
        regions = [Region(graph.all_nodes, backends[0], "default")]
    program = Compiler(target, PieceCache(pieces, 2**30)).placement(graph, Placement(tuple(regions)))
    if isinstance(program, BuildFailure):
        raise SystemExit(program.reason)
    path = directory / f"{'-'.join(backends)}.collage"
    write_artifact(path, program, target, {})
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--rounds", type=int, default=7)
    pairs = ["+".join(pair) for pair in itertools.combinations(BACKENDS, 2)]
    parser.add_argument("--pairs", nargs="+", default=[*BACKENDS, *pairs])
    options = parser.parse_args()
    cores = usable_cores()[:THREADS]
    raw = {}
    with tempfile.TemporaryDirectory() as work:
        for pair in options.pairs:
            artifact = str(write(Path(work), tuple(pair.split("+")), Path(work) / "pieces"))
            sides = {"runtime": ["session", artifact], "defaults": ["naive", artifact]}
            for pause_s in (0.0, 0.1):
                found = take_turns(sides, cores, options.rounds, 0.4, pause_s)
                print(
                    f"{pair}, {'resting between bursts' if pause_s else 'without rest'}: "
                    f"runtime {median_ms(found, 'runtime'):.2f} ms, libraries' defaults "
                    f"{median_ms(found, 'defaults'):.2f} ms, ratio {ratio(found, 'runtime', 'defaults')}",
                    flush=True,
                )
                raw[f"{pair} {pause_s}"] = {side: [asdict(turn) for turn in found[side]] for side in found}
                options.output.write_text(json.dumps(raw))


if __name__ == "__main__":
    main()
