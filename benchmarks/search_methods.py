"""How close search methods come to the known optimum of the published simulated targets.

    python benchmarks/search_methods.py search_methods.json [--seeds 100 101 102 103 104] [--noise 0.01]

Prints, for each method, the median over targets and seeds of the gap to the optimum after 200 evaluations (and
earlier), and in how many evaluations this project's search reaches what Collage's reaches in all of them. The JSON
file holds every trace: true latency in ms of the best placement measured so far, after each evaluation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import repository  # noqa: F401
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from rivals import METHODS, Counted

from tests.support.targets import PUBLISHED, REPEATED

OURS = "collage_evo"
THEIRS = ("Collage", "Collage, k backends")
TARGETS = (*PUBLISHED, *REPEATED)
CHECKPOINTS = (25, 50, 67, 100, 200)


@dataclass(frozen=True)
class Run:
    """One method on one target with one seed. ``trace_ms[i]``: the best after evaluation i + 1; ``cpu_s`` in all."""

    target: str
    method: str
    seed: int
    optimum_ms: float
    trace_ms: tuple[float, ...]
    cpu_s: float

    def gap(self, evaluations: int) -> float:
        """Gap to the optimum after so many evaluations, as a fraction."""
        return self.trace_ms[min(evaluations, len(self.trace_ms)) - 1] / self.optimum_ms - 1


def run_method(index: int, optimum_ms: float, method: str, seed: int, noise: float, evaluations: int) -> Run:
    """Let one method search one target."""
    published = TARGETS[index]
    counted = Counted(published.make(noise), evaluations)
    started = time.process_time()
    METHODS[method](counted, seed)
    spent = time.process_time() - started
    return Run(published.name, method, seed, optimum_ms, tuple(counted.trace), round(spent, 2))


def evaluations_to_reach(runs: Sequence[Run], method: str, bar: float) -> int | None:
    """The first number of evaluations at which the method's median gap is at most ``bar``."""
    of_method = [run for run in runs if run.method == method]
    longest = max(len(run.trace_ms) for run in of_method)
    return next((n for n in range(1, longest + 1) if np.median([run.gap(n) for run in of_method]) <= bar), None)


def table(runs: Sequence[Run], methods: Sequence[str], names: Sequence[str]) -> Table:
    """Median gaps by method: over everything after so many evaluations, and by target at the end."""
    shown = Table(title="median gap to the optimum, %")
    shown.add_column("method")
    for count in CHECKPOINTS:
        shown.add_column(f"at {count}", justify="right")
    for name in names:
        shown.add_column(name, justify="right")
    for method in methods:
        of_method = [run for run in runs if run.method == method]
        gaps = [[run.gap(count) for run in of_method] for count in CHECKPOINTS]
        gaps += [[run.gap(len(run.trace_ms)) for run in of_method if run.target == name] for name in names]
        shown.add_row(method, *(f"{100 * np.median(those):.2f}" for those in gaps))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--targets", nargs="+", default=[target.name for target in PUBLISHED])
    parser.add_argument("--noise", type=float, default=0.0, help="relative noise of a measurement")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = [index for index, target in enumerate(TARGETS) if target.name in options.targets]
    optima = {index: TARGETS[index].optimum_ms() for index in chosen}
    tasks = [(i, optima[i], m, seed) for m in options.methods for i in chosen for seed in options.seeds]
    runs: list[Run] = Parallel(n_jobs=options.jobs)(
        delayed(run_method)(*task, options.noise, options.evaluations) for task in tasks
    )
    options.output.write_text(json.dumps([asdict(run) for run in runs]))
    names = [TARGETS[index].name for index in chosen]
    Console(width=200).print(table(runs, options.methods, names))
    for theirs in THEIRS:
        if {OURS, theirs} <= set(options.methods):
            bar = float(np.median([run.gap(options.evaluations) for run in runs if run.method == theirs]))
            needed = evaluations_to_reach(runs, OURS, bar)
            print(f"{theirs} ends at {bar:.2%}; {OURS} is there after {needed} evaluations")


if __name__ == "__main__":
    main()
