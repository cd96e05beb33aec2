"""Results of an Optuna study, as a table and as plots."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from rich.console import Console

from collage_evo.report.console import new_table

SHOWN = 10
"""Trials in the table."""


@dataclass(frozen=True)
class TrialRow:
    """One trial. ``value`` is None if it was pruned or failed: its intermediate value is not comparable."""

    number: int
    state: str
    value: float | None
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Trials:
    """All trials of a study, the best first."""

    study: str
    trials: tuple[TrialRow, ...]

    def print(self, console: Console, unit: str) -> None:
        """Print a table of the best trials; ``unit`` is the unit of the values."""
        table = new_table(f"{len(self.trials)} trials, best first", "trial", unit, "settings...")
        for trial in self.trials[:SHOWN]:
            value = trial.state if trial.value is None else f"{trial.value:.4f}"
            settings = ", ".join(f"{name}={_text(setting)}" for name, setting in trial.params.items())
            table.add_row(str(trial.number), value, settings)
        console.print(table)


def read_trials(study: optuna.Study) -> Trials:
    """The trials of ``study``."""
    sign = 1 if study.direction == optuna.study.StudyDirection.MINIMIZE else -1
    rows = [
        TrialRow(t.number, t.state.name.lower(), t.value if t.state.name == "COMPLETE" else None, t.params)
        for t in study.get_trials(deepcopy=False)
    ]
    rows.sort(key=lambda row: (row.value is None, sign * (row.value or 0.0), row.number))
    return Trials(study.study_name, tuple(rows))


def write_plots(study: optuna.Study, directory: Path) -> None:
    """``history.png``, ``parallel.png`` and ``importance.png``; the last needs two trials that differ."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as draw

    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    plots: dict[str, Callable[[optuna.Study], Any]] = {
        "history": draw.plot_optimization_history,
        "parallel": draw.plot_parallel_coordinate,
    }
    if len({trial.value for trial in done}) > 1:
        plots["importance"] = lambda study: draw.plot_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    for name, plot in plots.items() if done else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", UserWarning)  # axes of trials that are all alike
            axes = plot(study)
        axes.figure.savefig(directory / f"{name}.png", dpi=110, bbox_inches="tight")
        pyplot.close(axes.figure)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
