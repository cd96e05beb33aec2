"""``sweep``: an Optuna study of whole runs, over any keys of the configuration."""

from __future__ import annotations

import contextlib
import multiprocessing
import operator
import os
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import optuna

from collage_evo.answer.delivery import REPLACED
from collage_evo.config import Config, changed
from collage_evo.effort import EFFORT
from collage_evo.errors import CollageError, ConfigError, InputError
from collage_evo.files import reading
from collage_evo.fitness.process import exit_with_parent
from collage_evo.hardware.slots import usable_cores
from collage_evo.report.progress import LineReporter, Reporter
from collage_evo.report.result import Result
from collage_evo.report.stage import Stage
from collage_evo.report.study import Trials, read_trials, write_plots
from collage_evo.run.at_work import at_work
from collage_evo.run.directory import move_run, start_run, telling_to_resume
from collage_evo.run.evaluate import result_of
from collage_evo.search.tuning.ranges import check_range, grid_values, suggest
from collage_evo.search.tuning.study import storage_in, study_in

STUDY = "sweep"
STORAGE = "study.db"
FOLDER = "folder"
"""Trial attribute: number of its run directory, which a later trial continues after a kill."""
ERROR = "error"
"""Trial attribute: why the trial failed by itself."""
POLL_S = 1.0
"""Interval in seconds at which a parallel sweep reports progress."""


def run_sweep(config: Config, directory: Path, reporter: Reporter) -> Trials:
    """One run a trial, each in a run directory of its own under ``trials/``; ``sweep.parallel`` of them at a time.

    A sweep that was killed goes on: interrupted trials are continued in their own run directories. A run that fails
    counts as a failed trial, with its reason as the attribute ``error``.

    Raises:
        ConfigError: the search space names keys or values that do not exist.
        InputError: another process works in ``directory``.
    """
    with at_work(directory), telling_to_resume(directory):
        _check(config)
        shares = _shares(config)
        file = directory / STORAGE
        with reading(file, "move it away, and the sweep begins anew", wrong="cannot be used"):
            study = study_in(file, STUDY, "maximize" if config.sweep.metric == "speedup" else "minimize")
            _take_up(study)
        if len(shares) == 1:
            _work(study, _Objective(config, directory, reporter), contextlib.nullcontext(), reporter)
        else:
            _work_together(study, config, directory, shares, reporter)
        write_plots(study, directory)
        return read_trials(study)


def _work(study: optuna.Study, objective: _Objective, turn: AbstractContextManager[Any], reporter: Reporter) -> None:
    """Run trials until none is left; ``turn`` lets one process at a time choose the next."""
    while True:
        reporter.stage(Stage.SWEEP, objective.config.sweep.trials)
        reporter.advance(_ended(study))
        with turn:
            trial = _next_trial(study, objective.config)
        if trial is None:
            return
        try:
            study.tell(trial, objective(trial))
        except CollageError:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:  # only now: a trial that a kill ends before its result is recorded goes on with what lies there
            shutil.rmtree(objective.run(trial) / "work", ignore_errors=True)
            shutil.rmtree(objective.directory / REPLACED, ignore_errors=True)  # the sweep has an answer


def _work_together(
    study: optuna.Study, config: Config, directory: Path, shares: Sequence[tuple[int, ...]], reporter: Reporter
) -> None:
    """Start a process for each of ``shares``, all on one study: worker processes belong to the one that runs a
    trial."""
    spawn = multiprocessing.get_context("spawn")
    turn = spawn.Lock()
    processes = []
    for index, cores in enumerate(shares):
        share = config.replacing("target", cores=list(cores))
        args = (share, directory, turn, _log_of(directory, index), os.getpid())
        processes.append(spawn.Process(target=_work_in_process, args=args))
        processes[-1].start()
    reporter.log(f"{len(shares)} trials at a time; how far each is: {directory}/worker-*.log")
    if config.fitness.executor == "local":
        reporter.log("each has cores of its own, but not the memory: time the best once more alone (run)")
    reporter.stage(Stage.SWEEP, config.sweep.trials)
    reported = 0
    while any(process.is_alive() for process in processes):
        reporter.advance(_ended(study) - reported)
        reported = _ended(study)
        time.sleep(POLL_S)
    if dead := [index for index, process in enumerate(processes) if process.exitcode]:
        raise InputError(f"a process of the sweep died; see the end of {_log_of(directory, dead[0])}, then resume")


def _work_in_process(
    config: Config, directory: Path, turn: AbstractContextManager[Any], log: Path, parent: int
) -> None:
    """Main function of each process of a parallel sweep."""
    exit_with_parent(parent)
    sys.stderr = log.open("a", buffering=1)
    study = optuna.load_study(study_name=STUDY, storage=storage_in(directory / STORAGE))
    reporter = LineReporter()
    with contextlib.suppress(KeyboardInterrupt):  # the process in the user's terminal reports it
        _work(study, _Objective(config, directory, reporter), turn, reporter)


def _shares(config: Config) -> list[tuple[int, ...]]:
    """Cores for each of the parallel trials: disjoint on one machine; a cluster's trials share it.

    Raises:
        ConfigError: there are too few cores to time so many trials separately.
    """
    count, cores = config.sweep.parallel, tuple(config.target.cores)
    if count == 1 or config.fitness.executor != "local":
        return [cores] * count
    spec = config.sweep.space.get("target.threads", {"high": config.target.threads})
    threads = int(max(spec.get("choices") or [spec["high"]]))
    each = len(cores := cores or usable_cores()) // count
    if each < threads or "target.cores" in config.sweep.space:
        raise ConfigError(
            f"sweep.parallel is {count}: {len(cores)} core(s) hold {len(cores) // threads} trial(s) of {threads} "
            "thread(s) without two timing on one core; lower it, or measure on a cluster (fitness.executor)"
        )
    return [cores[index * each : (index + 1) * each] for index in range(count)]


def _log_of(directory: Path, index: int) -> Path:
    return directory / f"worker-{index}.log"


@dataclass(frozen=True)
class _Objective:
    config: Config
    directory: Path
    reporter: Reporter

    def __call__(self, trial: optuna.Trial) -> float:
        drawn = trial.params
        self.reporter.log(f"trial {trial.number}: " + ", ".join(f"{key}={value}" for key, value in drawn.items()))
        run = self.run(trial)
        try:
            result = result_of(self._resolved(run, drawn), run, self.reporter)
        except CollageError as error:
            trial.set_user_attr(ERROR, str(error))
            self.reporter.log(f"trial {trial.number} failed: {error}")
            raise
        return _value(result, self.config.sweep.metric)

    def run(self, trial: optuna.Trial) -> Path:
        """The run directory of ``trial``."""
        return self.directory / "trials" / f"{trial.user_attrs[FOLDER]:04d}"

    def _resolved(self, run: Path, drawn: Mapping[str, Any]) -> Config:
        """The trial's own configuration, as its run directory has it."""
        config = changed(self.config, drawn, "sweep.space")
        # the process that continues it may have other cores than the one that began it
        move_run(run, config.target.cores)
        return start_run(run, config, resume=True, trust=True)  # the sweep was asked about


def _value(result: Result, metric: str) -> float:
    if metric == "speedup":
        return result.candidate_speedup.estimate
    assert result.best.median_ms is not None, "an answer without a latency"
    return result.best.median_ms


def _check(config: Config) -> None:
    space = config.sweep.space
    if not space:
        raise ConfigError("sweep.space is empty: give keys, such as 'search.ga.population: {low: 8, high: 40}'")
    if EFFORT in space:
        raise ConfigError(f"sweep.space: {EFFORT} only sets the defaults of other keys: name those keys instead")
    for key, spec in space.items():
        check_range(f"sweep.space.{key}", spec)
        for value in spec.get("choices") or (spec["low"], spec["high"]):
            changed(config, {key: value}, "sweep.space")


def _whole(config: Config, key: str) -> bool:
    """Whether the key holds an integer now."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return isinstance(value, int) and not isinstance(value, bool)


def _sampler(config: Config, seed: int) -> optuna.samplers.BaseSampler:
    if config.sweep.sampler != "tpe":  # a grid's points come through the queue
        return optuna.samplers.RandomSampler(seed=seed)
    startup = min(10, 1 + config.sweep.trials // 3)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=config.sweep.parallel > 1)


def _next_point(study: optuna.Study, config: Config) -> dict[str, Any] | None:
    """An untried point of the grid, in a random order, so that a sweep that ends early covers all of it."""
    space = config.sweep.space
    values = [grid_values(f"sweep.space.{key}", spec, _whole(config, key)) for key, spec in space.items()]
    points = [dict(zip(space, point, strict=True)) for point in product(*values)]
    random.Random(config.sweep.seed).shuffle(points)
    tried = [trial.params for trial in study.get_trials(deepcopy=False)]
    return next((point for point in points if point not in tried), None)


def _next_trial(study: optuna.Study, config: Config) -> optuna.Trial | None:
    """The next trial, its run directory chosen; None when all were begun, or every point of a grid was tried."""
    states = optuna.trial.TrialState
    trials = study.get_trials(deepcopy=False)  # read once: other processes' trials end meanwhile
    begun = sum(trial.state == states.RUNNING or _has_ended(trial) for trial in trials)
    waiting = any(trial.state == states.WAITING for trial in trials)
    if begun >= config.sweep.trials:
        return None
    if config.sweep.sampler == "grid" and not waiting:
        if (point := _next_point(study, config)) is None:
            return None
        study.enqueue_trial(point)
    study.sampler = _sampler(config, config.sweep.seed + begun)
    trial = study.ask()
    for key, spec in config.sweep.space.items():
        suggest(trial, key, spec, _whole(config, key))
    if FOLDER not in trial.user_attrs:
        trial.set_user_attr(FOLDER, trial.number)
    return trial


def _take_up(study: optuna.Study) -> None:
    """Queue trials that a kill or Ctrl-C ended with the same values, to go on where their runs stopped."""
    trials = study.get_trials(deepcopy=False)
    last_in = {operator.index(trial.user_attrs[FOLDER]): trial for trial in trials if FOLDER in trial.user_attrs}
    for folder, trial in last_in.items():
        if trial.state == optuna.trial.TrialState.FAIL and ERROR not in trial.user_attrs:
            study.enqueue_trial(trial.params, user_attrs={FOLDER: folder})


def _ended(study: optuna.Study) -> int:
    return sum(_has_ended(trial) for trial in study.get_trials(deepcopy=False))


def _has_ended(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether it has a result or failed by itself; a trial that a kill ended is tried again."""
    return trial.state == optuna.trial.TrialState.COMPLETE or ERROR in trial.user_attrs
