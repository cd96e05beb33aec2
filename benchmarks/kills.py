"""Whether the cost database survives: processes that measure into one database, killed at random moments.

    python benchmarks/kills.py [--kills 200] [--processes 3] [--lanes]

What they measure is one operator in ONNX Runtime, or with ``--lanes`` a model of two towers on two lanes.

After every kill the database is opened, checked by SQLite and read row by row; at the end every row must be one
that a process announced before it wrote it, and nothing announced as written may be missing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import onnx
from networks import make_network

from collage_evo.accuracy.limits import Limits
from collage_evo.costs.database import CostDatabase
from collage_evo.graph.read import build_graph
from collage_evo.measure.jobs import CostJob, Measured, Setting, WorkFiles
from collage_evo.measure.worker import Worker
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from collage_evo.target.target import Target
from collage_evo.testing.models import chain


def measure_for_ever(directory: Path, lanes: bool) -> None:
    """Measure and write until killed; each key on a line of standard output before and after it is written."""
    graph = build_graph(onnx.load(WorkFiles(directory).normalised))
    backend, variant, threads = ("lanes", "onnxruntime", 2) if lanes else ("onnxruntime", "default", 1)
    setting = Setting(str(directory), str(directory / "cache"), 2**30, Target(threads=threads), Limits(1e-3))
    worker = Worker(setting, ())
    database = CostDatabase(directory / "costs.sqlite")
    region = Region(graph.all_nodes, backend, variant)
    for number in range(10**9):
        answer = worker.do(CostJob(region, TimingSettings(1, 5, 0.0), float("inf"), flush=False))
        assert isinstance(answer, Measured), answer
        key = f"{os.getpid()}-{number}"
        print("begin", key, flush=True)
        database.put(key, answer)
        print("done", key, flush=True)


def rows(path: Path) -> set[str]:
    """Keys of the database after a check of every page and row."""
    with sqlite3.connect(path) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            raise SystemExit(f"damaged: {verdict}")
        keys = {key for (key,) in connection.execute("SELECT key FROM costs")}
    database = CostDatabase(path)
    for key in random.sample(sorted(keys), min(20, len(keys))):
        assert isinstance(database.get(key), Measured)
    return keys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--lanes", action="store_true", help="measure parts that run side by side")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_for_ever(options.measure, options.lanes)
    with tempfile.TemporaryDirectory() as work:
        model = make_network("network:two_tower") if options.lanes else chain(1)
        onnx.save(model, WorkFiles(Path(work)).normalised)
        log, command = Path(work) / "log", [sys.executable, __file__, "--measure", work]
        command += ["--lanes"] * options.lanes
        output = log.open("a")
        start = partial(subprocess.Popen[bytes], command, stdout=output, stderr=subprocess.DEVNULL)
        running = [start() for _ in range(options.processes)]
        database, waited = Path(work) / "costs.sqlite", time.monotonic() + 60
        while not log.stat().st_size and time.monotonic() < waited:
            time.sleep(0.1)
        for kill in range(options.kills):
            time.sleep(random.uniform(0.2, 2.0))
            victim = running.pop(0)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            running.append(start())
            found = rows(database)
            if kill % 20 == 19:
                print(f"{kill + 1} kills, {len(found)} rows, all readable", flush=True)
        for process in running:
            process.kill()
            process.wait()
        said = [line.split() for line in log.read_text().splitlines()]
        begun, done = ({key for word, key in said if word == kind} for kind in ("begin", "done"))
        found = rows(database)
        print(f"{options.kills} kills: {len(found)} rows, {len(done - found)} lost, {len(found - begun)} unknown")


if __name__ == "__main__":
    main()
