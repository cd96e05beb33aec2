"""``sweep``: whole runs over any keys of the configuration, chosen by Optuna; takes one, gives a study."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import optuna

from collage_evo.config import Config, parse_config
from collage_evo.errors import CollageError, ConfigError
from collage_evo.genome.ranges import check_range, grid_values, suggest
from collage_evo.pipeline import run_pipeline
from collage_evo.report.progress import Reporter
from collage_evo.report.result import Result
from collage_evo.report.study import Trials, read_trials, write_plots
from collage_evo.rundir import start_run

STUDY = "sweep"
STORAGE = "study.db"
FOLDER = "folder"
"""Attribute of a trial: the run directory it works in, which a later trial goes on in after a kill."""
ERROR = "error"
"""Attribute of a trial that failed by itself: why."""


def run_sweep(config: Config, directory: Path, reporter: Reporter) -> Trials:
    """One run a trial, each in a run directory of its own under ``trials/``.

    A sweep that was killed goes on: the trial that was under way is taken up again, in its own run directory.
    A run that fails counts as a failed trial, with its reason as the attribute ``error``.

    Raises:
        ConfigError: the search space names keys or values that do not exist.
    """
    _check(config)
    up, down = optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE
    study = optuna.create_study(
        study_name=STUDY,
        storage=optuna.storages.RDBStorage(storage_url(directory)),
        load_if_exists=True,
        direction=up if config.sweep.metric == "speedup" else down,
    )
    _take_up(study)
    reporter.stage("sweep", config.sweep.trials)
    reporter.advance(_ended(study))
    objective = _Objective(config, directory, reporter)
    _enqueue_grid(study, config)
    while _ended(study) < config.sweep.trials and not _exhausted(study, config):
        study.sampler = _sampler(config, config.sweep.seed + _ended(study))
        study.optimize(objective, n_trials=1, catch=(CollageError,))
        reporter.stage("sweep", config.sweep.trials)
        reporter.advance(_ended(study))
    write_plots(study, directory)
    return read_trials(study)


def storage_url(directory: Path) -> str:
    """Optuna's storage of the sweep in ``directory``."""
    return f"sqlite:///{directory.absolute() / STORAGE}"


@dataclass(frozen=True)
class _Objective:
    config: Config
    directory: Path
    reporter: Reporter

    def __call__(self, trial: optuna.Trial) -> float:
        space = self.config.sweep.space
        drawn = {key: suggest(trial, key, spec, _whole(self.config, key)) for key, spec in space.items()}
        folder = trial.user_attrs.get(FOLDER, f"trials/{trial.number:04d}")
        trial.set_user_attr(FOLDER, folder)
        self.reporter.say(f"trial {trial.number}: " + ", ".join(f"{key}={value}" for key, value in drawn.items()))
        run = self.directory / folder
        try:
            result = run_pipeline(self._resolved(run, drawn), run, self.reporter)
        except CollageError as error:
            trial.set_user_attr(ERROR, str(error))
            self.reporter.say(f"trial {trial.number} failed: {error}")
            raise
        shutil.rmtree(run / "work", ignore_errors=True)
        return _value(result, self.config.sweep.metric)

    def _resolved(self, run: Path, drawn: Mapping[str, Any]) -> Config:
        """The trial's own configuration, as its run directory keeps it."""
        config = _with_values(self.config, drawn)
        return start_run(run, config, resume=True)


def _value(result: Result, metric: str) -> float:
    if metric == "speedup":
        return result.candidate_speedup.median
    assert result.best.median_ms is not None, "an answer without a latency"
    return result.best.median_ms


def _with_values(config: Config, values: Mapping[str, Any]) -> Config:
    overrides = [f"{key}={json.dumps(value)}" for key, value in values.items()]  # JSON is YAML
    return parse_config(config.model_dump(mode="json"), overrides, "sweep.space")


def _check(config: Config) -> None:
    space = config.sweep.space
    if not space:
        raise ConfigError("sweep.space is empty: give keys, such as 'search.ga.population: {low: 8, high: 40}'")
    for key, spec in space.items():
        check_range(f"sweep.space.{key}", spec)
        for value in spec.get("choices") or (spec["low"], spec["high"]):
            _with_values(config, {key: value})


def _whole(config: Config, key: str) -> bool:
    """Whether the key holds an integer now."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return isinstance(value, int) and not isinstance(value, bool)


def _sampler(config: Config, seed: int) -> optuna.samplers.BaseSampler:
    if config.sweep.sampler != "tpe":  # a grid's points are all in the queue
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=min(10, 1 + config.sweep.trials // 3))


def _enqueue_grid(study: optuna.Study, config: Config) -> None:
    """Queue every point of a grid, in a random order, so that a sweep that ends early has seen all of it."""
    if config.sweep.sampler != "grid":
        return
    space = config.sweep.space
    values = [grid_values(f"sweep.space.{key}", spec, _whole(config, key)) for key, spec in space.items()]
    points = [dict(zip(space, point, strict=True)) for point in product(*values)]
    random.Random(config.sweep.seed).shuffle(points)
    for point in points:
        study.enqueue_trial(point, skip_if_exists=True)


def _exhausted(study: optuna.Study, config: Config) -> bool:
    """Whether every point of a grid was tried."""
    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    return config.sweep.sampler == "grid" and not waiting


def _take_up(study: optuna.Study) -> None:
    """Trials that a kill or Ctrl-C ended are tried again with the same values, where their runs stopped."""
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    trials = study.get_trials(deepcopy=False)
    last_in = {trial.user_attrs[FOLDER]: trial for trial in trials if FOLDER in trial.user_attrs}
    for folder, trial in last_in.items():
        if trial.state == optuna.trial.TrialState.FAIL and ERROR not in trial.user_attrs:
            study.enqueue_trial(trial.params, user_attrs={FOLDER: folder})


def _ended(study: optuna.Study) -> int:
    """Trials that came to a result or failed by themselves; those that a kill ended are tried again."""
    return sum(
        trial.state == optuna.trial.TrialState.COMPLETE or ERROR in trial.user_attrs
        for trial in study.get_trials(deepcopy=False)
    )
