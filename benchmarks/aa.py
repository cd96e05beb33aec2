"""Whether the final comparison can be trusted: an artifact against itself, and against one slowed by 3 %.

    python benchmarks/aa.py aa.json [--model builtin:squeezenet] [--comparisons 20] [--busy]
    python benchmarks/aa.py recorded.json --record 40 --model builtin:resnet50
    python benchmarks/aa.py layouts.json --layouts 20

Each comparison is a race as at the end of a run, over as soon as it is decided. Where an artifact wins over a copy of
itself, that is a false win; that it wins over the slowed one is a find. ``--busy``: beside a neighbour who multiplies
matrices on the last core.

``--record``: for slow models, whose races take a minute each. So many rounds of the artifact against its copy are
recorded once; races are windows of them, from a random round on and with the sides swapped at random, in which one
side is taken to be 1, 1.03, 1.1 and 1.7 times as fast.

``--layouts``: whether loading anew draws as new a layout of memory as another process does: rounds of the copy
against the original, some in each of so many processes. If it does, processes differ no more than their rounds make
them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median, stdev, variance

import numpy as np
import repository  # noqa: F401

from collage_evo.answer.answer import RUNS
from collage_evo.answer.race import Race, RaceRunner, race
from collage_evo.answer.sequential import FEWEST, LOOKS, Ratio, Stopping
from collage_evo.backends.base import BuildFailure
from collage_evo.config import parse_config
from collage_evo.graph.load.files import read_model
from collage_evo.measure.build.cache import PieceCache
from collage_evo.measure.build.compiler import Compiler
from collage_evo.measure.timing import log_ratio, log_ratios
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.open import open_run
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.target.slots import usable_cores
from tests.support.faults import install_faulty
from tests.support.races import race_over, wins

ITSELF = "itself"
RESAMPLED = 2000
"""Races of recorded rounds."""
RELOADS = 4
"""Rounds of each process."""
NEIGHBOUR = "import numpy as np\na = np.ones((1500, 1500), np.float32)\nwhile True: a @ a"


@dataclass(frozen=True)
class Comparison:
    """What a race found, and how long it took."""

    ratio: Ratio
    seconds: float


def artifact(context: RunContext, backend: str, variant: str) -> Path:
    """The whole model on one backend."""
    compiler = Compiler(context.target, PieceCache(Path(context.setting.cache), context.setting.cache_bytes))
    program = compiler.whole(read_model(context.files.original), backend, variant)
    if isinstance(program, BuildFailure):
        raise SystemExit(program.reason)
    path = context.work / f"{backend}-{variant}.collage"
    write_artifact(path, [Profile(program)], context.target)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--backend", default="onnxruntime", help="of --layouts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--record", type=int, default=0, help="rounds to record")
    parser.add_argument("--layouts", type=int, default=0, help="processes to compare")
    options = parser.parse_args()
    config = parse_config(
        {"model": {"source": options.model}, "target": {"threads": options.threads}}, (), "benchmark"
    )
    with tempfile.TemporaryDirectory() as work, open_run(config, Path(work), LineReporter()) as (context, _):
        os.environ.update(install_faulty(Path(work) / "plugin"))
        sys.path.insert(0, str(Path(work) / "plugin"))
        plain = artifact(context, options.backend if options.layouts else "onnxruntime", "default")
        copy = plain.with_name("copy.collage")
        shutil.copytree(plain, copy)
        with neighbour() if options.busy else contextlib.nullcontext():
            if options.record:
                record(context, {"rival": copy, "it": plain}, options.record, options.output)
            elif options.layouts:
                layouts(context, {"rival": copy, "it": plain}, options.layouts, options.output)
            else:
                rivals = {ITSELF: copy, "slowed by 3 %": artifact(context, "faulty", "slow")}
                compare_all(context, plain, rivals, options.comparisons, options.output)


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """Somebody at work on the last core."""
    core = usable_cores()[-1]
    command = ["taskset", "-c", str(core), sys.executable, "-c", NEIGHBOUR]
    process = subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    try:
        yield
    finally:
        process.kill()


def compare_all(
    context: RunContext, plain: Path, rivals: Mapping[str, Path], comparisons: int, output: Path
) -> None:
    """Races against each of ``rivals`` in turn."""
    races_of: dict[str, list[Comparison]] = {rival: [] for rival in rivals}
    for _ in range(comparisons):
        for rival, path in rivals.items():
            races_of[rival].append(compare(path, plain, context))
        output.write_text(json.dumps({k: [asdict(r) for r in v] for k, v in races_of.items()}))
    for rival, races in races_of.items():
        print(line_of(rival, races, "false wins" if rival == ITSELF else "finds"))


def line_of(rival: str, races: Sequence[Comparison], wins: str) -> str:
    """How often the artifact won over ``rival``, which its ``wins`` are, and after how long."""
    ratios, spent = [one.ratio for one in races], [one.seconds for one in races]
    won, lost = sum(r.low > 1.0 for r in ratios), sum(r.high < 1.0 for r in ratios)
    logs = [math.log(r.estimate) for r in ratios]
    of_rounds = mean(stdev(map(math.log, r.rounds)) for r in ratios)
    spread = f", spread {stdev(logs):.4f}" if len(logs) > 1 else ""
    return (
        f"against {rival}: {wins} {won} of {len(races)}, {rival} for certain faster in {lost}; "
        f"{math.exp(mean(logs)):.4f} times as fast{spread}, of rounds {of_rounds:.4f}; "
        f"{mean(len(r.rounds) for r in ratios):.1f} rounds, {median(spent):.1f} s, at most {max(spent):.1f} s"
    )


def compare(rival: Path, it: Path, context: RunContext) -> Comparison:
    """A race until it is decided, as in the final: see ``Standing``."""
    stopping = Stopping()

    def still(so_far: Race) -> tuple[str, ...]:
        times = so_far.logs("rival", "it"), so_far.expected("rival", "it")
        won = so_far.length in stopping.looks and stopping.won(*times)
        late = so_far.over(max(20.0, RUNS * 1e-3 * so_far.timing("rival").median_ms))
        return () if won or late or stopping.given_up(*times) else ("rival", "it")

    began = time.monotonic()
    raced = race({"rival": rival, "it": it}, context.whole, stopping.rounds, still)
    return Comparison(raced.ratio("rival", "it", stopping.significance), time.monotonic() - began)


def record(context: RunContext, artifacts: Mapping[str, Path], rounds: int, output: Path) -> None:
    """Record ``rounds`` of two equals, and say how races of them end."""
    raced = race(artifacts, context.whole, rounds)
    laps = [log_ratios(*both) for both in zip(raced.rounds["rival"], raced.rounds["it"], strict=True)]
    ms, round_s = raced.timing("it").median_ms, raced.seconds / raced.length
    output.write_text(json.dumps({"ms": ms, "round_s": round_s, "laps": [one.tolist() for one in laps]}))
    few = max(FEWEST, min(LOOKS[-1], rounds, int(max(20.0, RUNS * 1e-3 * ms) / round_s)))
    stopping, rng = Stopping(few), np.random.default_rng(0)
    spread = stdev(float(np.median(one)) for one in laps)
    print(f"{ms:.1f} ms, {len(laps[0])} laps, {round_s:.2f} s a round, {few} at most; rounds differ by {spread:.4f}")
    for speedup in (1.0, 1.03, 1.1, 1.7):
        ended = []
        for _ in range(RESAMPLED):
            first, sign = int(rng.integers(rounds)), rng.choice([-1.0, 1.0])
            window = [sign * laps[(first + k) % rounds] + math.log(speedup) for k in range(few)]
            ended.append(race_over(window, stopping))
        won, took_s = mean(wins(one, stopping) for one in ended), round_s * mean(map(len, ended))
        print(f"  {speedup} times as fast: wins {100 * won:.1f} %, {took_s:.1f} s in the mean")


def layouts(context: RunContext, artifacts: Mapping[str, Path], processes: int, output: Path) -> None:
    """Rounds in several processes, ``RELOADS`` in each."""
    ratios: list[list[float]] = []
    with context.whole.uncontended() as cores:
        for index in range(processes):
            with RaceRunner(artifacts, context.whole, cores, random.Random(index)) as track:
                track.start_sandboxes(artifacts)
                rounds = [track.round(list(artifacts)) for _ in range(RELOADS)]
            ratios.append([log_ratio(one["rival"], one["it"]) for one in rounds])
            output.write_text(json.dumps(ratios))
    reloads = math.sqrt(mean(map(variance, ratios)))
    print(
        f"rounds of one process differ by {reloads:.4f}; means over the {RELOADS} rounds of a process by "
        f"{stdev(map(mean, ratios)):.4f}, where reloads alone would make {reloads / math.sqrt(RELOADS):.4f}"
    )


if __name__ == "__main__":
    main()
