"""Optuna's studies in a file, which a process may continue that another one began."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import optuna


def storage_in(file: Path) -> optuna.storages.RDBStorage:
    """The storage in ``file``. Processes that write to it wait for each other."""
    return optuna.storages.RDBStorage(
        f"sqlite:///{file.absolute()}", engine_kwargs={"connect_args": {"timeout": 60}}
    )


def study_in(
    file: Path, name: str, direction: Literal["minimize", "maximize"], pruner: optuna.pruners.BasePruner | None = None
) -> optuna.Study:
    """The study in ``file``, created if missing; trials of a process that died count as failed."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # the reporter shows progress
    study = optuna.create_study(
        study_name=name, storage=storage_in(file), load_if_exists=True, direction=direction, pruner=pruner
    )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study
