"""What each region of a placement costs beyond the backend's own call.

    python benchmarks/overhead.py overhead.json [--regions 64] [--rounds 15] [--open INPUTS]

A chain of small convolutions and Relus, ONNX Runtime and OpenVINO in turn, one operator a region, one thread. The
runtime's loop against a hand-written loop of the same libraries' calls on bound buffers, each in a process of its
own, taking turns. The difference over the number of regions is the overhead.

With --open: what a call of a session costs beyond ONNX Runtime's own ``InferenceSession.run``, for one region with so
many inputs of open sizes, at a shape that it had before, and at shapes that are new to it. Beside other work take the
difference of the fastest tenths of calls, which nothing disturbed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import repository  # noqa: F401
from turns import Rounds, faults_per_run, median_ms, take_turns

from collage_evo.answer.sequential import mean_interval
from collage_evo.backends.base import Target
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.graph.convert.read import build_graph
from collage_evo.hardware.slots import usable_cores
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.session import RECENT
from collage_evo.runtime.signature import signature_of
from tests.support.models import chain, parse_graph

ENGINES = ("onnxruntime", "openvino")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--regions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--open", type=int, metavar="INPUTS", help="calls at open shapes instead")
    options = parser.parse_args()
    turns = open_calls(options.open, options.rounds) if options.open else regions(options.regions, options.rounds)
    options.output.write_text(json.dumps({kind: [asdict(turn) for turn in turns[kind]] for kind in turns}))


def regions(count: int, rounds: int) -> Rounds:
    target = Target("cpu", 1, ())
    graph = build_graph(chain(count // 2))
    chosen = tuple(Region(1 << i, ENGINES[i % 2], "default") for i in range(len(graph.nodes)))
    with tempfile.TemporaryDirectory() as work:
        compiler = Compiler(target, PieceCache(Path(work) / "pieces", 2**30))
        program = compiler.placement(graph, Placement(chosen))
        artifact = Path(work) / "chain.collage"
        write_artifact(artifact, [Profile(program)], target)
        sides = {kind: [kind, str(artifact)] for kind in ("execute", "bound", "session")}
        turns = take_turns(sides, usable_cores()[:1], rounds, 0.3)
    pairs = zip(turns["execute"], turns["bound"], strict=True)
    extra = [(a.median_ms - b.median_ms) / len(chosen) * 1e3 for a, b in pairs]
    low, high = mean_interval(extra)
    for kind in sides:
        print(f"{kind}: {median_ms(turns, kind):.4f} ms, page faults a run {faults_per_run(turns, kind):.2f}")
    print(f"overhead: {np.mean(extra):.2f} [{low:.2f}, {high:.2f}] microseconds a region, {len(chosen)} regions")
    return turns


def open_calls(inputs: int, rounds: int) -> Rounds:
    names = [f"x{k}" for k in range(inputs)]
    taken = ", ".join(f"float[batch, length] {name}" for name in names)
    model = parse_graph(f"g ({taken}) => (float[batch, length] y) {{ y = Sum({', '.join(names)}) }}")
    with tempfile.TemporaryDirectory() as work:
        file, artifact = Path(work) / "open.onnx", Path(work) / "open.collage"
        onnx.save(model, file)
        program = Compiler(Target("cpu", 1, ()), PieceCache(Path(work) / "pieces", 2**30)).whole(
            model, "onnxruntime", "default"
        )
        write_artifact(artifact, [Profile(program)], Target("cpu", 1, ()), signature_of(model))
        shapes = {"known": 1, "new": 4 * RECENT}
        sides = {
            f"{side} {kind}": ["opened", str(path), str(count)]
            for kind, count in shapes.items()
            for side, path in (("session", artifact), ("library", file))
        }
        turns = take_turns(sides, usable_cores()[:1], rounds, 0.3)
    for kind in shapes:
        pairs = zip(turns[f"session {kind}"], turns[f"library {kind}"], strict=True)
        extra = [(a.median_ms - b.median_ms) * 1e3 for a, b in pairs]
        low, high = mean_interval(extra)
        ours, theirs = (
            min(float(np.percentile(turn.times_ms, 10)) for turn in turns[f"{side} {kind}"])
            for side in ("session", "library")
        )
        print(
            f"{kind} shape, {inputs} inputs: {np.mean(extra):.2f} [{low:.2f}, {high:.2f}] microseconds a call, "
            f"of the fastest tenths {(ours - theirs) * 1e3:.2f}"
        )
    return turns


if __name__ == "__main__":
    main()
