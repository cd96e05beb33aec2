"""Runs a second of a machine that is full: each single backend, and what searches for either objective answer.

    python benchmarks/throughput.py throughput.json [--model builtin:squeezenet] [--search 60] [--rounds 8]

As many sessions at once as fill the cores, once with one thread each and once as a single session on all threads. For
the former two searches are made, for latency and for throughput; for the latter the two are one. Then all take turns
in rounds, the sessions of each side in a process of its own: so the machine does the same to all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.table import Table

import collage_evo
from collage_evo.answer.baselines import read_baselines
from collage_evo.answer.race import race
from collage_evo.answer.sequential import Ratio
from collage_evo.config import parse_config
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.directory import reopen_run
from collage_evo.run.open import open_run
from collage_evo.target.slots import usable_cores

OBJECTIVES = ("latency", "throughput")
SLOW = 3.0
"""Single backends that took this many times as long as the best one when the search began are left out."""


def searched(model: str, threads: int, seconds: float, folder: Path) -> Mapping[str, Path]:
    """The run directories of searches for ``model``, by what they are for."""
    asked = OBJECTIVES if len(usable_cores()) // threads > 1 else OBJECTIVES[:1]
    runs = {objective: folder / f"{threads}-{objective}" for objective in asked}
    for objective, out in runs.items():
        config = parse_config({"model": {"source": model}, "search": {"objective": objective}}, (), "benchmark")
        collage_evo.optimize(model, threads=threads, search_seconds=seconds, config=config, out=out)
    return runs


def sides(runs: Mapping[str, Path]) -> Mapping[str, Path]:
    """Artifacts by what they are: the single backends that are not far behind, and the answers."""
    first = next(iter(runs.values()))
    found = read_baselines(first / "baselines.json", first / "baselines")
    times = {b.name: b.outcome.latency_ms for b in found if b.outcome.latency_ms is not None}
    near = [b for b in found if b.name in times and times[b.name] <= SLOW * min(times.values())]
    answers = {f"answer for {objective}": run / "best.collage" for objective, run in runs.items()}
    return {**{b.name: b.artifact for b in near}, **answers}


@contextlib.contextmanager
def opened(runs: Mapping[str, Path]) -> Iterator[RunContext]:
    """The run whose references and cores all sides of one number of threads are measured with."""
    first = next(iter(runs.values()))
    with open_run(reopen_run(first), first, LineReporter()) as (run, _):
        yield run


def take_turns(model: str, search_s: float, rounds: int) -> dict[str, list[float]]:
    """The machine's time for a run of each side, ms, by round."""
    taken: dict[str, list[float]] = {}
    with TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        entered = []
        for threads in dict.fromkeys((1, len(usable_cores()))):
            runs = searched(model, threads, search_s, Path(work))
            entered.append((stack.enter_context(opened(runs)), sides(runs)))
        for _ in range(rounds):
            for run, artifacts in entered:
                threads, found = run.config.target.threads, race(artifacts, run.full, 1)
                for name, failure in found.failed.items():
                    print(f"{name}: {failure}", flush=True)
                for name in found.rounds:
                    side = f"{name}, {run.sessions} x {threads} thread(s)"
                    taken.setdefault(side, []).append(found.timing(name).median_ms)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--search", type=float, default=60.0, help="time of each search, seconds")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    taken = take_turns(options.model, options.search, options.rounds)
    options.output.write_text(json.dumps(taken, indent=1))
    full = {name: times for name, times in taken.items() if len(times) == options.rounds}
    best = min(full, key=lambda name: np.median(full[name]))
    shown = Table("side", "runs a second", "times as many as the fastest side", title=options.model)
    for name, times in sorted(full.items(), key=lambda item: np.median(item[1])):
        ratio = Ratio.of(np.log(np.array(full[best]) / np.array(times)).tolist())
        shown.add_row(name, f"{1e3 / np.median(times):.1f}", str(ratio))
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
