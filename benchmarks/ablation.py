"""What each mechanism of the search wins: default runs with one mechanism off each, whose answers take turns.

    python benchmarks/ablation.py FOLDER ablation.json [--networks ...] [--variants ...] [--seconds 45] [--budget 0.1]

Networks are trained ones that packages ship: three of the contest, of 1 to 15 ms, and three of ``ordinary_trained``.
Each has its cache of compiled pieces and costs, which the first run (``again``, the default with another seed) fills
and the others share, so that a variant loses nothing but its mechanism. By what ``again`` differs from the default,
runs differ. On one core; the JSON file holds raw times. A run that is in FOLDER is not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import repository  # noqa: F401
from contest.task import Task
from contest.tasks import TASKS
from ordinary_trained import TRAINED
from turns import median_ms, ratio, take_turns

from collage_evo.graph.load.data import write_npz
from collage_evo.target.processor import this_machine
from collage_evo.target.slots import usable_cores

SMALL = ("orientation", "pitch", "signs")
LARGE = ("scores", "sentences", "characters")
SAMPLES, HELD_OUT = 48, 12
LIBRARIES = ("onnxruntime", "openvino", "ncnn", "tvm")
SEEDS = 24
"""The first generation of the search: the seeds, and nothing bred."""
_NO_LADDER = """
import collage_evo.search.evolution.seeds as seeds
seeds.greedy_levels = lambda *given: iter(())
"""


def _without(library: str) -> dict[str, Any]:
    return {"backends.use": [other for other in LIBRARIES if other != library]}


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "again": {"search.ga.seed": 1},
    "default": {},
    "no ncnn": _without("ncnn"),
    "no TVM": _without("tvm"),
    "no rewrites": {"search.rewrites": False},
    "no border costs": {"policy.cuts": 0},
    "no mixed-precision ladder": {},
    "no lower precision": {"accuracy.budget": "exact"},
    "no evolution": {"search.evaluations": SEEDS},
    "no surrogate": {
        "search.ga.random_share": 1.0, "search.ga.program_share": 0.0, "search.ga.climb": 0,
        "policy.random_within": 1000,
    },
}  # fmt: skip
"""Settings of each variant."""
PATCHES = {"no mixed-precision ladder": _NO_LADDER}
"""What no setting turns off."""


def export(place: Path, name: str) -> None:
    """Write a network and its data, unless they are there."""
    if (place / "data.npz").exists():
        return
    place.mkdir(parents=True, exist_ok=True)
    if name in TRAINED:
        import onnx

        model, samples, _ = TRAINED[name](SAMPLES, HELD_OUT)
        onnx.save(model, place / "model.onnx")
        write_npz(place / "data.npz", samples)
        return
    task = Task(name, place)
    TASKS[name].maker(task, SAMPLES, HELD_OUT)
    with np.load(task.samples) as loaded:
        samples = {key: loaded[key].squeeze(1) for key in task.inputs()}
    write_npz(place / "data.npz", samples)


def run(place: Path, variant: str, seconds: float, budget: float) -> Path:
    """The directory of a variant's run, which is made unless it is there."""
    run = place / variant.replace(" ", "-")
    if (run / "result.json").exists():
        return run
    settings = {
        "accuracy.budget": budget, "search.seconds": seconds, "target.cores": [usable_cores()[0]],
        "cache.dir": str(place / "cache"), **VARIANTS[variant],
    }  # fmt: skip
    command = ["run", str(place / "model.onnx"), "--data", str(place / "data.npz"), "--out", str(run), "--overwrite"]
    for key, value in settings.items():
        command += ["-s", f"{key}={json.dumps(value)}"]
    program = f"{PATCHES.get(variant, '')}\nfrom collage_evo.__main__ import run\nrun()"
    subprocess.run([sys.executable, "-c", program, *command], check=True, stdout=subprocess.DEVNULL)
    return run


def compare(runs: Mapping[str, Path], rounds: int, seconds: float) -> dict[str, Any]:
    """Times of the answers in turns, and ratios to the default's."""
    sides = {variant: ("session", str(path / "best.collage")) for variant, path in runs.items()}
    turns = take_turns(sides, usable_cores()[:1], rounds, seconds)
    return {
        "ms": {side: median_ms(turns, side) for side in sides},
        "ratio": {side: asdict(ratio(turns, side, "default")) for side in sides if side != "default"},
        "raw": {side: [turn.times_ms for turn in turns[side]] for side in sides},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--networks", nargs="+", default=[*SMALL, *LARGE])
    parser.add_argument("--variants", nargs="+", default=[*VARIANTS], choices=[*VARIANTS])
    parser.add_argument("--seconds", type=float, default=45.0, help="of each search")
    parser.add_argument("--budget", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    figures: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    figures["cpu"] = this_machine().cpu
    for name in options.networks:
        export(options.folder / name, name)
        runs, took = {}, {}
        for variant in dict.fromkeys(["again", "default", *options.variants]):
            began = time.monotonic()
            runs[variant] = run(options.folder / name, variant, options.seconds, options.budget)
            took[variant] = time.monotonic() - began
            print(f"{name}: {variant}, {took[variant]:.0f} s", flush=True)
        row = compare(runs, options.rounds, 0.5)
        figures[name] = row | {"seconds": took}
        for variant, ms in row["ms"].items():
            print(f"  {variant:28} {ms:8.3f} ms  {ms / row['ms']['default']:.3f}", flush=True)
        options.output.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
