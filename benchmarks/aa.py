"""Whether the final comparison can be trusted: an artifact against itself, and against one slowed by 3 %.

    python benchmarks/aa.py aa.json [--model builtin:resnet50] [--comparisons 20] [--rounds 8] [--turn 0.1]

Each comparison is a race as at the end of a run: both sides in fresh processes each round, taking turns, over as soon
as it is decided, the interval one that holds however often one looks. Against itself the interval ought to hold 1,
and neither side ought to win; over the slowed one it ought to win.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median, stdev

import onnx
import repository  # noqa: F401

from collage_evo.backends.base import BuildFailure
from collage_evo.config import parse_config
from collage_evo.fitness.build.cache import PieceCache
from collage_evo.fitness.build.compiler import Compiler
from collage_evo.fitness.final.race import Race, Ratio, race
from collage_evo.fitness.final.sequential import Stopping
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.stages.model import prepare
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.timing import TimingSettings
from tests.support.faults import install_faulty


@dataclass(frozen=True)
class Comparison:
    """What a race found, and how long it took."""

    ratio: Ratio
    seconds: float


def artifact(context: RunContext, backend: str, variant: str) -> Path:
    """The whole model on one backend."""
    compiler = Compiler(context.target, PieceCache(Path(context.setting.cache), context.setting.cache_bytes))
    program = compiler.whole(onnx.load(context.setting.original), backend, variant)
    if isinstance(program, BuildFailure):
        raise SystemExit(program.reason)
    path = context.work / f"{backend}-{variant}.collage"
    write_artifact(path, [Profile(program)], context.target)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=8, help="most rounds of a race")
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of a turn")
    options = parser.parse_args()
    turn = TimingSettings(1, 2, options.turn, max_seconds=30.0)
    stopping = Stopping(options.rounds)
    config = parse_config(
        {"model": {"source": options.model}, "target": {"threads": options.threads}}, (), "benchmark"
    )
    found: dict[str, list[Comparison]] = {"itself": [], "slowed by 3 %": []}
    with tempfile.TemporaryDirectory() as work, RunContext(config, Path(work), LineReporter()) as context:
        os.environ.update(install_faulty(Path(work) / "plugin"))
        sys.path.insert(0, str(Path(work) / "plugin"))
        prepare(context)
        plain, slow = artifact(context, "onnxruntime", "default"), artifact(context, "faulty", "slow")
        for _ in range(options.comparisons):
            for rival, path in (("itself", plain), ("slowed by 3 %", slow)):
                found[rival].append(compare(path, plain, context, stopping, turn))
            options.output.write_text(json.dumps({k: [asdict(r) for r in v] for k, v in found.items()}))
    show(found)


def compare(rival: Path, it: Path, context: RunContext, stopping: Stopping, turn: TimingSettings) -> Comparison:
    """A race until it is decided."""

    def still(so_far: Race) -> tuple[str, ...]:
        logs = so_far.logs("rival", "it")
        return () if stopping.won(logs) or stopping.given_up(logs) else ("rival", "it")

    began = time.monotonic()
    raced = race({"rival": rival, "it": it}, context.pool, stopping.rounds, turn, still=still)
    ratio = Ratio.of(raced.logs("rival", "it"), stopping.significance)
    return Comparison(ratio, time.monotonic() - began)


def show(found: Mapping[str, Sequence[Comparison]]) -> None:
    """How often each was right, and what it took."""
    for rival, races in found.items():
        ratios = [one.ratio for one in races]
        holds = sum(r.low <= 1.0 <= r.high for r in ratios)
        won = sum(r.low > 1.0 for r in ratios)
        rounds, seconds = mean(len(r.rounds) for r in ratios), median(one.seconds for one in races)
        spread = stdev(r.median for r in ratios)
        print(
            f"against {rival}: won {won} of {len(races)}, the interval holds 1 in {holds}; spread of ratios "
            f"{spread:.4f}, of rounds {mean(stdev(r.rounds) for r in ratios):.4f}; "
            f"{rounds:.1f} rounds, {seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
