"""How soon a person has an answer: whole runs from an empty cache, and where their time goes.

    python benchmarks/time_to_answer.py [MODEL ...] [--package FOLDER] [--json FILE] [--data FILE] [--limit 1200]
        [--options "-s search.seconds=30 ..."]

Each model is run by the command line in a process of its own, with nothing measured or compiled before. ``--package``
names the checkout of another version to run instead, for a comparison on the same machine. Prints for each model the
seconds until the first answer, the second one and 95 % of what the whole run gains, those of each kind of stage, the
whole, what the answer is worth, the largest memory of the parent (without mapped files), and the bytes on disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from networks import model_source
from rich.console import Console
from rich.table import Table

MODELS = (
    "builtin:squeezenet", "builtin:mobilenet_v2", "builtin:resnet50", "network:inception_v1", "network:densenet121",
    "builtin:bert?layers=4", "builtin:resnet3d_18",
)  # fmt: skip
UNFINISHED: dict[str, Any] = {
    "wall_seconds": {}, "cost_model": None, "search": None, "speedup_over_best_single": {}, "answer": "not finished",
}  # fmt: skip
"""Of a run that reached its limit."""


@dataclass(frozen=True)
class Row:
    """Seconds of one run: until the first answer, of its stages by kind, of the whole; and what came out."""

    model: str
    first: float | None
    baselines: float
    costs: float
    search: float
    final: float
    whole: float
    known: int
    matches: int
    evaluations: int
    answer: str
    over_single: float | None
    second: float | None = None
    most_gain: float | None = None
    parent_gb: float = 0.0
    all_gb: float = 0.0
    disk_gb: float = 0.0


@dataclass
class Watched:
    """What a run said, with the seconds at which it did, and its memory in GB."""

    lines: list[tuple[float, str]]
    parent_gb: float = 0.0
    all_gb: float = 0.0

    @property
    def answers(self) -> list[tuple[float, float]]:
        """Seconds and ms of each answer that was published before the last one."""
        lines = ((at, re.search(r"(?:first answer|best so far).*?: .*?([\d.]+) ms", line)) for at, line in self.lines)
        return [(at, float(match[1])) for at, match in lines if match]

    def most_gain(self, last_ms: float, whole: float) -> float | None:
        """Seconds until an answer with 95 % of the gain of the last over the first one; None without any gain."""
        answers = [*self.answers, (whole, last_ms)]
        first_ms = answers[0][1]
        wanted = 1 + 0.95 * (first_ms / last_ms - 1)
        return next((at for at, ms in answers if first_ms / ms >= wanted), None) if last_ms < first_ms else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--package", type=Path, help="checkout of another version (default: this one)")
    parser.add_argument("--data", type=Path, help="of the only model")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which a run is ended")
    parser.add_argument("--options", type=str.split, default=[], help="further options of the command, one string")
    parser.add_argument("--json", type=Path, help="where to keep the rows")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        data = ["--data", str(args.data.absolute())] if args.data else []
        rows.append(run(model, args.package, args.limit, [*data, *args.options]))
        print(rows[-1], flush=True)
        if args.json:
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    _print(rows)


def run(model: str, package: Path | None, limit: float, options: Sequence[str]) -> Row:
    """One run from an empty cache."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "run"
        command = [
            *(sys.executable, "-m", "collage_evo", "run", model_source(model), "--out", str(out)),
            *("-s", f"cache.dir={work}/cache", *options),
        ]
        environment = {**os.environ, **({"PYTHONPATH": str(package.absolute())} if package else {})}
        began = time.monotonic()
        watched = _watched(command, environment, Path(work), limit)
        whole = time.monotonic() - began
        files = {(status.st_ino, status.st_size) for path in Path(work).rglob("*") for status in [path.lstat()]}
        result = json.loads((out / "result.json").read_text()) if (out / "result.json").exists() else UNFINISHED
        row = _row(model, whole, result)
        last_ms, answers = (result.get("speeds") or {}).get("latency_ms"), watched.answers
        return replace(
            row,
            first=row.first or (answers[0][0] if answers else None),
            second=answers[1][0] if len(answers) > 1 else None,
            most_gain=watched.most_gain(last_ms, whole) if last_ms and answers else None,
            parent_gb=watched.parent_gb,
            all_gb=watched.all_gb,
            disk_gb=sum(size for _, size in files) / 1e9,
        )


def _watched(command: Sequence[str], environment: Mapping[str, str], work: Path, limit: float) -> Watched:
    """Run ``command`` to its end, or for ``limit`` seconds."""
    began, watched = time.monotonic(), Watched([])
    with subprocess.Popen(
        command, env=environment, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None

        def read(stream: IO[str]) -> None:
            watched.lines.extend((time.monotonic() - began, line) for line in stream)

        reader = threading.Thread(target=read, args=(process.stderr,))
        reader.start()
        while process.poll() is None:
            parent = _anonymous_gb(process.pid)
            watched.parent_gb = max(watched.parent_gb, parent)
            watched.all_gb = max(watched.all_gb, parent + sum(map(_anonymous_gb, _children(process.pid))))
            if time.monotonic() - began > limit:
                process.send_signal(signal.SIGINT)
                limit = math.inf
            time.sleep(0.2)
        reader.join()
        if process.returncode not in (0, 130):
            raise SystemExit("".join(line for _, line in watched.lines[-5:]))
    return watched


def _children(process: int) -> list[int]:
    """All processes that ``process`` started, and those that they did."""
    children: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                children += [child, *_children(child)]
    return children


def _anonymous_gb(process: int) -> float:
    """Memory of a process that is no file's, in GB (Linux)."""
    with contextlib.suppress(OSError, StopIteration):
        text = Path(f"/proc/{process}/status").read_text().splitlines()
        return int(next(line for line in text if line.startswith("RssAnon")).split()[1]) / 1e6
    return 0.0


def _row(model: str, whole: float, result: dict[str, Any]) -> Row:
    stages: dict[str, float] = result["wall_seconds"]
    costs, search = result["cost_model"] or {}, result["search"] or {}
    over_single: dict[str, Any] = result["speedup_over_best_single"]

    def spent(*words: str) -> float:
        return sum(seconds for name, seconds in stages.items() if any(word in name for word in words))

    matches = sum(costs.get("matches", {}).values())
    return Row(
        model,
        stages.get("first answer at"),
        spent("baselines"),
        spent("costs"),
        search.get("wall_seconds", 0.0),
        spent("final", "compile", "verify"),
        whole,
        matches - costs.get("estimated", 0),
        matches,
        search.get("evaluations", 0),
        result["answer"],
        over_single.get("estimate", over_single.get("median")),  # as versions before schema 3 called it
    )


def _print(rows: list[Row]) -> None:
    memory = ("parent GB", "all GB", "disk GB")
    stages = ("baselines", "costs", "search", "final", "whole s")
    table = Table("model", "first s", "second s", "95 % s", *memory, *stages, "costs known", "answer", "")
    for row in rows:
        times = [row.first, row.second, row.most_gain, row.parent_gb, row.all_gb, row.disk_gb]
        times += [row.baselines, row.costs, row.search, row.final, row.whole]
        shown = ["-" if seconds is None else f"{seconds:.3g}" for seconds in times]
        gain = "-" if row.over_single is None else f"{row.over_single:.3f}"
        table.add_row(row.model, *shown, f"{row.known} of {row.matches}", row.answer, gain)
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
