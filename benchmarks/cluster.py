"""One search on one Dask worker against several, one of which is killed in mid-search.

    python benchmarks/cluster.py cluster.json [--workers 1 3] [--model builtin:squeezenet] [--evaluations 60]

Scheduler and workers are processes of this machine; costs are measured before, so that only the search counts.
Workers share the machine's cores: those that find no timing slot are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from distributed import Client

from collage_evo.answer.baselines import best_single
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import select_backends
from collage_evo.config import parse_config
from collage_evo.placement.failure import Fault
from collage_evo.report.progress import LineReporter
from collage_evo.run.open import open_run
from collage_evo.run.stages.baselines import measure_baselines
from collage_evo.run.stages.costs import gather_costs
from collage_evo.run.stages.evolve import evolve
from collage_evo.run.stages.model import normalise
from collage_evo.search.evolution.seeds import make_seeds

START_S = 60.0
KILL_AFTER_S = 10.0


@dataclass(frozen=True)
class Row:
    """One search. ``by_worker`` counts what was measured, ``lost`` what failed; the rest was
    predicted to be hopeless and not measured."""

    workers: int
    killed: bool
    evaluations: int
    seconds: float
    best_ms: float
    lost: int
    by_worker: dict[str, int]


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler's address and its workers."""
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "scheduler.json"
        program = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"]
        started = [start([*program, "--scheduler-file", str(info), "--no-dashboard"])]
        program = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(info)]
        program += ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", folder]
        started += [start(program) for _ in range(workers)]
        try:
            while not info.exists():
                time.sleep(0.1)
            with Client(scheduler_file=str(info)) as client:
                client.wait_for_workers(workers, timeout=START_S)
                address = client.scheduler.address
            yield address, started[1:]
        finally:
            for process in started:
                process.kill()
                process.wait()


def search(model: str, workers: int, kill: bool, evaluations: int, cache: str) -> Row:
    """Search with so many workers; ``kill`` ends one of them after ``KILL_AFTER_S``."""
    with cluster(workers) as (address, processes), tempfile.TemporaryDirectory() as work:
        data = {
            "model": {"source": model},
            "search": {"seconds": math.inf, "evaluations": evaluations, "ga": {"patience": 0}},
            "cache": {"dir": cache},
        }
        local = parse_config(data, (), "benchmark")
        data["fitness"] = {"executor": "dask", "address": address}
        spread = parse_config(data, (), "benchmark")
        backends = select_backends(())
        with open_run(local, Path(work), LineReporter()) as (context, prepared):
            graph = normalise(context, prepared).graph
            found = enumerate_matches(graph, backends)
            single = best_single(measure_baselines(context, backends))
            space = gather_costs(context, graph, found, backends).space
        with open_run(spread, Path(work), LineReporter()) as (context, prepared):
            killer = threading.Timer(KILL_AFTER_S, processes[-1].kill)
            if kill:
                killer.start()
            result = evolve(context, space, make_seeds(space), prepared, [single])
            killer.cancel()
            killed = processes[-1].poll() is not None
    outcomes = list(result.outcomes.values())
    return Row(
        workers=workers,
        killed=killed,
        evaluations=result.state.evaluations,
        seconds=result.state.seconds,
        best_ms=min(o.latency_ms for o in outcomes if o.ok and o.latency_ms is not None),
        lost=sum(o.failure is not None and o.failure.fault is not Fault.FAR_BEHIND for o in outcomes),
        by_worker=dict(Counter(o.worker for o in outcomes if o.worker)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--model", default="builtin:squeezenet")
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--cache", default=os.path.expanduser("~/.cache/collage_evo"), help="costs and regions")
    options = parser.parse_args()
    rows = []
    for workers in options.workers:
        for kill in (False, True) if workers > 1 else (False,):
            rows.append(search(options.model, workers, kill, options.evaluations, options.cache))
            options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1))
            print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
