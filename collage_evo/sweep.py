"""``sweep``: measured costs once, then Optuna over the genetic search's hyperparameters on predicted latency."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from rich.console import Console
from rich.table import Table

from collage_evo.backends.select import require_device, select_backends
from collage_evo.config import Config
from collage_evo.genome.settings import GaSettings
from collage_evo.genome.tuning import TrialReport, tune
from collage_evo.patterns.enumerate import enumerate_matches
from collage_evo.report.progress import Reporter
from collage_evo.stages import Stages

STUDY = "sweep"
STORAGE = "study.db"
DEFAULT_SPACE: Mapping[str, Mapping[str, Any]] = {
    "population": {"low": 8, "high": 48, "step": 4},
    "offspring": {"low": 4, "high": 16, "step": 2},
    "crossover_rate": {"low": 0.0, "high": 1.0},
    "mutation_rate": {"low": 0.1, "high": 1.0},
    "tournament": {"low": 2, "high": 6},
    "screen_factor": {"low": 2, "high": 24, "log": True},
    "random_share": {"low": 0.0, "high": 0.5},
}


@dataclass(frozen=True)
class Trial:
    """One trial: its settings and the mean gap to the cheapest predicted placement it reached (0.01 is 1 %)."""

    number: int
    state: str
    gap: float | None
    params: Mapping[str, Any]


@dataclass(frozen=True)
class SweepResult:
    """All trials, the best first, and the settings to put under ``search.ga``."""

    trials: tuple[Trial, ...]
    best: GaSettings
    swept: tuple[str, ...]
    storage: str

    def print(self, console: Console) -> None:
        """A table of the ten best trials and the settings to use."""
        table = Table(title=f"{len(self.trials)} trials, best first")
        table.add_column("trial", justify="right")
        table.add_column("gap to DP", justify="right")
        for name in self.swept:
            table.add_column(name, justify="right")
        for trial in self.trials[:10]:
            gap = "" if trial.gap is None else f"{100 * trial.gap:.2f} %"
            table.add_row(str(trial.number), gap, *(f"{trial.params.get(name, ''):.4g}" for name in self.swept))
        console.print(table)
        chosen = " ".join(f"-s search.ga.{name}={getattr(self.best, name):.4g}" for name in self.swept)
        console.print(f"use: {chosen}", soft_wrap=True, highlight=False)
        console.print(f"all trials: {self.storage} (study '{STUDY}')", soft_wrap=True, highlight=False)


def run_sweep(config: Config, directory: Path, reporter: Reporter) -> SweepResult:
    """Sweep; goes on where an interrupted one stopped.

    Raises:
        CollageError: bad input, configuration or a missing backend.
    """
    require_device(config.target.device)
    backends = select_backends(config.backends.use)
    with Stages(config, directory, reporter) as stages:
        model = stages.prepare()
        found = enumerate_matches(model.graph, backends, config.verify.tolerance)
        costs = stages.measure_costs(model, found, backends)
    reporter.stage("sweep on predicted latency", config.sweep.trials)
    swept = config.sweep.space or DEFAULT_SPACE
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = f"sqlite:///{directory.absolute() / STORAGE}"

    def on_trial(report: TrialReport) -> None:
        best = "" if report.best_gap is None else f"best gap {100 * report.best_gap:.2f} %"
        reporter.advance(1, best)

    best = tune(
        costs.space,
        url,
        STUDY,
        config.sweep.trials,
        swept,
        config.sweep.evaluations,
        range(config.sweep.seeds),
        on_trial,
        config.search.ga,
    )
    result = SweepResult(_trials(url), best, tuple(swept), str(directory / STORAGE))
    work = directory / "sweep.tmp"
    work.write_text(json.dumps(asdict(result), indent=1))
    os.replace(work, directory / "sweep.json")
    return result


def _trials(url: str) -> tuple[Trial, ...]:
    study = optuna.load_study(study_name=STUDY, storage=url)
    # A pruned trial stopped after its first searches: its gap is not comparable with a complete one's.
    rows = [
        Trial(t.number, t.state.name.lower(), t.value if t.state.name == "COMPLETE" else None, t.params)
        for t in study.get_trials(deepcopy=False)
    ]
    return tuple(sorted(rows, key=lambda row: (row.gap is None, row.gap or 0.0, row.number)))
