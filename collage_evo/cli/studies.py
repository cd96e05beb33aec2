"""Commands that make many trials: sweep, tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collage_evo.cli.app import Debug, Json, Out, Overwrite, Quiet, Resume, Set, command, require_given_once
from collage_evo.cli.held import hold_process
from collage_evo.cli.stop import resumable
from collage_evo.codec import to_json
from collage_evo.report.console import PlainConsole

if TYPE_CHECKING:
    from collage_evo.config import Config
    from collage_evo.run.directory import Kind


@command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML configuration with a section sweep.")],
    overrides: Set = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make whole runs with settings that Optuna chooses.

    The settings are any keys of the configuration; Optuna samples them by grid, at random or by TPE.
    """
    _begin(source, overrides, out, resume, overwrite, "sweep", as_json, quiet)


@command()
def tune(
    source: Annotated[str, typer.Argument(metavar="MODEL", help="As for run.")],
    overrides: Set = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Tune the genetic search with Optuna.

    The trials search on simulated targets, which are learned from the model's own measurements.
    """
    _begin(source, overrides, out, resume, overwrite, "tune", as_json, quiet)


def _begin(
    source: str,
    overrides: list[str] | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    kind: Kind,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make the trials in a run directory, made or reopened."""
    from collage_evo.config import load_config
    from collage_evo.run.at_work import at_work
    from collage_evo.run.directory import run_directory, start_run, undone_without_answer

    require_given_once({"--out": out}, overrides)
    config = load_config(source, overrides or ())
    hold_process(config)
    directory = run_directory(config, source, out)
    with at_work(directory):
        begun = start_run(directory, config, resume=resume, overwrite=overwrite, kind=kind, source=source)
        with undone_without_answer(directory):
            run_study(directory, begun, kind, as_json, quiet)


def run_study(directory: Path, config: Config, kind: Kind, as_json: bool, quiet: bool) -> None:
    """Make the trials of the sweep or tuning in ``directory``, and print them."""
    from collage_evo.commands.sweep import run_sweep
    from collage_evo.commands.tune import run_tune
    from collage_evo.report.progress import reporter

    with resumable(directory), reporter(quiet) as progress:
        trials = (run_tune if kind == "tune" else run_sweep)(config, directory, progress)
    if as_json:
        print(to_json(trials, indent=1))
    elif kind == "tune":
        trials.print(PlainConsole(), "latency / best seed's")
        print(f"written: the chosen search.ga in {directory}/config.yaml, all trials in {directory}/tune.db, plots")
    else:
        trials.print(PlainConsole(), "speedup" if config.sweep.metric == "speedup" else "ms")
        print(f"written: {directory}/study.db (optuna-dashboard opens it), {directory}/trials/, plots")
