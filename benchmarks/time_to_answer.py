"""How soon a person has an answer: whole runs from an empty cache, and where their time goes.

    python benchmarks/time_to_answer.py [MODEL ...] [--seconds 30] [--threads 1] [--package FOLDER] [--json FILE]

Each model is run by the command line in a process of its own, with nothing measured or compiled before. ``--package``
names the checkout of another version to run instead, for a comparison on the same machine. Prints for each model the
seconds until the first answer, those of each kind of stage, the whole, and what the answer is worth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from networks import model_source
from rich.console import Console
from rich.table import Table

MODELS = (
    "builtin:squeezenet", "builtin:mobilenet_v2", "builtin:resnet50", "network:inception_v1", "network:densenet121",
    "builtin:bert?layers=4", "builtin:resnet3d_18",
)  # fmt: skip


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, help="of search (default: as a run without settings has)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--package", type=Path, help="checkout of another version (default: this one)")
    parser.add_argument("--json", type=Path, help="where to keep the rows")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        rows.append(run(model, args.seconds, args.threads, args.package))
        print(rows[-1], flush=True)
        if args.json:
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    _print(rows)


def run(model: str, seconds: float | None, threads: int, package: Path | None) -> Row:
    """One run from an empty cache."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "run"
        command = [
            *(sys.executable, "-m", "collage_evo", "run", model_source(model), "--out", str(out)),
            *("-s", f"target.threads={threads}", "-s", f"cache.dir={work}/cache"),
            *(() if seconds is None else ("-s", f"search.seconds={seconds}")),
        ]
        environment = {**os.environ, **({"PYTHONPATH": str(package.absolute())} if package else {})}
        began = time.monotonic()
        subprocess.run(command, check=True, env=environment, cwd=work, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - began
        return _row(model, whole, json.loads((out / "result.json").read_text()))


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
    table = Table("model", "first s", "baselines", "costs", "search", "final", "whole s", "costs known", "answer", "")
    for row in rows:
        times = (row.first, row.baselines, row.costs, row.search, row.final, row.whole)
        shown = ["-" if seconds is None else f"{seconds:.0f}" for seconds in times]
        gain = "-" if row.over_single is None else f"{row.over_single:.3f}"
        table.add_row(row.model, *shown, f"{row.known} of {row.matches}", row.answer, gain)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
