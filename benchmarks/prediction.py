"""How near the additive model comes to what placements take: predicted over measured, of the first that a run tried.

    python benchmarks/prediction.py prediction.json [--runs runs/a runs/b ...] [--models builtin:squeezenet ...]
        [--first 50] [-s KEY=VALUE ...]

Run directories are read as they are; each of ``--models`` is run first, with default settings but for ``-s``. It
tells for each the median of predicted over measured, the 10th and 90th percentiles, the rank correlation (Spearman)
and the seconds that costs took. Times that others disturbed count too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from networks import model_source
from scipy.stats import spearmanr

from collage_evo.run import recorded

MODELS = (
    *("builtin:resnet50", "builtin:mobilenet_v2", "builtin:squeezenet", "network:densenet121"),
    *("network:inception_v1", "builtin:bert?layers=2"),
)
COSTS = "costs"
"""Stages of a run that measure costs are named so."""


@dataclass(frozen=True)
class Row:
    """One run: of each of its first placements that ran, in order, ms as predicted and as measured."""

    run: str
    predicted_ms: tuple[float, ...]
    measured_ms: tuple[float, ...]
    cost_seconds: float
    evaluations: int
    kinds: tuple[str, ...]

    @property
    def line(self) -> str:
        if len(self.measured_ms) < 2:
            return f"{self.run}: {len(self.measured_ms)} placements ran: too few"
        ratios = np.divide(self.predicted_ms, self.measured_ms)
        low, high = np.percentile(ratios, (10, 90))
        rank = float(spearmanr(self.predicted_ms, self.measured_ms).statistic)
        return (
            f"{self.run}: predicted over measured {statistics.median(ratios):.2f} (p10 {low:.2f}, p90 {high:.2f}), "
            f"rank correlation {rank:.2f}, {len(ratios)} of {self.evaluations} placements, "
            f"costs {self.cost_seconds:.0f} s"
        )


def read_run(directory: Path, first: int) -> Row:
    """What a run directory tells of its first ``first`` placements."""
    found = recorded.read_run(directory)
    in_order = sorted(found.evaluated.values(), key=lambda one: one.evaluation)
    ran = [(one, ms) for one in in_order if (ms := one.outcome.latency_ms) and one.predicted_ms][:first]
    return Row(
        directory.name,
        tuple(one.predicted_ms for one, _ in ran),
        tuple(ms for _, ms in ran),
        sum(s for stage, s in found.result.wall_seconds.items() if stage.startswith(COSTS)),
        len(in_order),
        tuple(one.kind for one, _ in ran),
    )


def run_model(source: str, directory: Path, settings: Sequence[str]) -> Path:
    """The directory of a run of ``source`` with default settings but for ``settings``."""
    run = directory / (source.partition(":")[2] or source).partition("?")[0].replace("/", "-")
    given = [part for setting in settings for part in ("-s", setting)]
    command = [sys.executable, "-m", "collage_evo", "run", model_source(source), "--out", str(run), *given]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="raw figures, JSON")
    parser.add_argument("--runs", nargs="+", type=Path, default=[], help="directories of finished runs")
    parser.add_argument("--models", nargs="+", help="default, without --runs: six networks")
    parser.add_argument("--first", type=int, default=50, help="placements of each run")
    parser.add_argument("-s", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as work:
        made = options.models or (() if options.runs else MODELS)
        runs = (run_model(source, Path(work), options.settings) for source in made)
        for run in itertools.chain(options.runs, runs):
            rows.append(read_run(run, options.first))
            options.output.write_text(json.dumps([asdict(row) for row in rows], indent=1))
            print(rows[-1].line, flush=True)


if __name__ == "__main__":
    main()
