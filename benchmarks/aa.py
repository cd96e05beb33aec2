"""Whether the final comparison can be trusted: an artifact against itself, and against one slowed by 3 %.

    python benchmarks/aa.py aa.json [--model builtin:resnet50] [--comparisons 20] [--rounds 15] [--turn 0.3]

Each comparison is a race as at the end of a run: both sides in fresh processes, taking turns, the median of the
paired ratios with its 95 % interval. Against itself the interval ought to hold 1; against the slowed one it ought
to lie above 1 as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median, stdev

import onnx

from collage_evo.backends.base import BuildFailure
from collage_evo.config import parse_config
from collage_evo.fitness.compiler import Compiler, PieceCache
from collage_evo.fitness.race import Ratio, race
from collage_evo.report.progress import LineReporter
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.timing import TimingSettings
from collage_evo.stages import Stages
from collage_evo.testing.faults import install_faulty


def artifact(stages: Stages, backend: str, variant: str) -> Path:
    """The whole model on one backend."""
    compiler = Compiler(stages.target, PieceCache(Path(stages.setting.cache), stages.setting.cache_bytes))
    program = compiler.whole(onnx.load(stages.setting.original), backend, variant)
    if isinstance(program, BuildFailure):
        raise SystemExit(program.reason)
    path = stages.work / f"{backend}-{variant}.collage"
    write_artifact(path, [Profile(program)], stages.target)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn")
    options = parser.parse_args()
    turn = TimingSettings(2, 3, options.turn, max_seconds=10.0)
    config = parse_config(
        {"model": {"source": options.model}, "target": {"threads": options.threads}}, (), "benchmark"
    )
    found: dict[str, list[Ratio]] = {"itself": [], "slowed by 3 %": []}
    with tempfile.TemporaryDirectory() as work, Stages(config, Path(work), LineReporter()) as stages:
        os.environ.update(install_faulty(Path(work) / "plugin"))
        sys.path.insert(0, str(Path(work) / "plugin"))
        stages.prepare()
        plain, slow = artifact(stages, "onnxruntime", "default"), artifact(stages, "faulty", "slow")
        for _ in range(options.comparisons):
            for rival, path in (("itself", plain), ("slowed by 3 %", slow)):
                result = race({"rival": path, "it": plain}, stages.pool, options.rounds, turn)
                found[rival].append(result.ratio("rival", "it"))
            options.output.write_text(json.dumps({k: [asdict(r) for r in v] for k, v in found.items()}))
    n = options.comparisons
    holds = sum(r.low <= 1.0 <= r.high for r in found["itself"])
    apart = sum(r.low > 1.0 for r in found["slowed by 3 %"])
    width = median(r.high - r.low for r in found["itself"])
    spread = stdev(r.median for r in found["itself"])
    print(f"against itself: the interval holds 1 in {holds} of {n}, width {width:.4f}; spread of ratios {spread:.4f}")
    print(f"against one slowed by 3 %: told apart in {apart} of {n}")


if __name__ == "__main__":
    main()
