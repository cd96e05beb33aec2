"""Thread pools of several libraries in one process: whether they get on, and what they would do by themselves.

    python benchmarks/threads.py threads.json [--rounds 5] [--seconds 0.3]

A chain of twelve 3x3 convolutions with Relu on 64 channels of 28 x 28 on two threads, cut into regions of one
convolution and Relu, on one backend or on two in turn. A pair that gets on takes the mean of what its backends
take each on the same cuts. Beside it the same regions in a plain loop in which every library keeps its own
settings. Once without rest, and once resting 0.1 s after every 20 runs, as between requests. Every side in a
process of its own on the same two cores, taking turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from turns import Rounds, median_ms, ratio, take_turns

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.fitness.build.cache import PieceCache
from collage_evo.fitness.build.compiler import Compiler
from collage_evo.graph.read import build_graph
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.target.slots import usable_cores
from collage_evo.testing.models import chain

BACKENDS = ("onnxruntime", "openvino", "ncnn", "tvm")
THREADS, BLOCKS = 2, 12


def write(directory: Path, backends: tuple[str, ...]) -> str:
    """The artifact of the chain on ``backends`` in turn."""
    target = Target("cpu", THREADS, ())
    graph = build_graph(chain(BLOCKS, channels=64, size=28))
    regions = tuple(Region(0b11 << 2 * i, backends[i % len(backends)], "default") for i in range(BLOCKS))
    program = Compiler(target, PieceCache(directory / "pieces", 2**30)).placement(graph, Placement(regions))
    if isinstance(program, BuildFailure):
        raise SystemExit(program.reason)
    path = directory / f"{'-'.join(backends)}.collage"
    write_artifact(path, [Profile(program)], target)
    return str(path)


def over_expected(found: Rounds, pair: tuple[str, str]) -> float:
    """Median over rounds of the pair's time over the mean of its two backends' times."""
    turns = zip(found["+".join(pair)], found[pair[0]], found[pair[1]], strict=True)
    return float(np.median([2 * both.median_ms / (a.median_ms + b.median_ms) for both, a, b in turns]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    options = parser.parse_args()
    pairs = list(itertools.combinations(BACKENDS, 2))
    raw = {}
    with tempfile.TemporaryDirectory() as work:
        sides = {name: ["session", write(Path(work), (name,))] for name in BACKENDS}
        for pair in pairs:
            artifact = write(Path(work), pair)
            sides["+".join(pair)] = ["session", artifact]
            sides["+".join(pair) + " by themselves"] = ["naive", artifact]
        for pause_s in (0.0, 0.1):
            found = take_turns(sides, usable_cores()[:THREADS], options.rounds, options.seconds, pause_s)
            print("resting between bursts" if pause_s else "without rest")
            for name in BACKENDS:
                print(f"  {name}: {median_ms(found, name):.2f} ms")
            for pair in pairs:
                name = "+".join(pair)
                print(
                    f"  {name}: {median_ms(found, name):.2f} ms, {over_expected(found, pair):.2f} times what is "
                    f"expected; by themselves {ratio(found, name + ' by themselves', name)} times as long"
                )
            raw[str(pause_s)] = {side: [asdict(turn) for turn in turns] for side, turns in found.items()}
    options.output.write_text(json.dumps(raw))


if __name__ == "__main__":
    main()
