"""The run directory: who may write where, what a run saves first, what a resumed run may change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from collage_evo.config import Config, dump_decided, parse_config
from collage_evo.errors import ConfigError, InputError
from collage_evo.files import read_json, reading, write_whole
from collage_evo.yaml_values import load_yaml, read_override

CONFIG = "config.yaml"
RUN = "run.json"
"""Says which of ``KINDS`` a run is."""
Kind = Literal["run", "tune", "sweep"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BUDGET = ("search.seconds", "search.evaluations", "tune.trials", "tune.seconds", "sweep.trials")
"""Keys that may change when a run goes on, and only upwards."""
RETIRED = ("final.turn_seconds",)
"""Keys of earlier versions, which a saved configuration may have and which mean nothing any more."""
ADDRESS = "fitness.address"
"""May change too: a scheduler that was started again has another one."""


@dataclass(frozen=True)
class _Begun:
    """What ``run.json`` holds."""

    kind: Kind


def run_directory(config: Config, source: str, out: Path | None) -> Path:
    """Where a run goes: ``--out``, else the configuration's ``output.dir``, else ``runs/`` and its name."""
    if out is not None:
        return out
    if config.output.dir is not None:
        return Path(config.output.dir)
    name = source.removeprefix("builtin:").partition("?")[0]
    return Path("runs") / Path(name).stem


def start_run(
    directory: Path, config: Config, *, resume: bool = False, overwrite: bool = False, kind: str = "run"
) -> Config:
    """Make the run directory and save the configuration in it; returns the configuration to use.

    Raises:
        InputError: the directory is in use and neither ``resume`` nor ``overwrite`` was asked for.
        ConfigError: the run that is to go on has another objective.
    """
    used = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if used and resume:
        saved = reopen_run(directory, _budget_of(config))
        asked, had = config.search.objective, saved.search.objective
        if asked != had and "objective" in config.search.model_fields_set:
            raise ConfigError(f"the run in {directory} is for {had}, not for {asked}: choose another --out")
        return saved
    if used and overwrite:
        if not (directory / CONFIG).is_file():
            raise InputError(f"{directory} is not a run directory, so it is not overwritten: choose another --out")
        shutil.rmtree(directory)
    elif used:
        raise InputError(f"{directory} is in use: choose --resume to go on, --overwrite to start over, or --out")
    directory.mkdir(parents=True, exist_ok=True)
    save_run(directory, config, kind)
    return config


def save_run(directory: Path, config: Config, kind: str) -> None:
    """Write what a later ``resume`` needs: the configuration, and which of ``KINDS`` the run is."""
    save_config(directory, config)
    write_whole(directory / RUN, json.dumps({"kind": kind}))


def save_config(directory: Path, config: Config) -> None:
    """Write the configuration that a run resolved to, as far as it is decided, whole or not at all."""
    write_whole(directory / CONFIG, dump_decided(config))


def kind_of_run(directory: Path) -> Kind:
    """Which of ``KINDS`` the run in ``directory`` is.

    Raises:
        DamagedFile: it does not say.
    """
    mend = "start again with the command that it was started with, and --overwrite"
    return read_json(directory / RUN, _Begun, mend).kind


def discard_unbegun(directory: Path) -> None:
    """Remove a run directory in which nothing was measured, so that a mended command can use its name."""
    if (directory / CONFIG).is_file() and not any(directory.rglob("baselines.json")):
        shutil.rmtree(directory)


def reopen_run(directory: Path, overrides: Sequence[str]) -> Config:
    """The saved configuration of a run, with a larger budget where one is given.

    Raises:
        InputError: no run there, or its configuration is damaged.
        ConfigError: an override changes something else than the budget and the cluster's address, or makes the
            budget smaller.
    """
    path = directory / CONFIG
    if not directory.is_dir():
        raise InputError(f"no run directory {directory}: start one with: python -m collage_evo run CONFIG")
    if not path.exists():
        raise InputError(f"{directory} holds no {CONFIG}, so it is not a run: start one with run CONFIG")
    with reading(path, "start again with run CONFIG --overwrite"):
        data = _without_retired(load_yaml(path.read_text()))
        saved = parse_config(data, (), str(path))
    for override in overrides:
        _require_allowed(saved, override)
    config = parse_config(data, overrides, "-s")
    if overrides:
        save_config(directory, config)
    return config


def _without_retired(data: dict[str, Any]) -> dict[str, Any]:
    for key in RETIRED:
        section, name = key.split(".")
        data.get(section, {}).pop(name, None)
    return data


def _require_allowed(saved: Config, override: str) -> None:
    key = override.partition("=")[0]
    if key == ADDRESS:
        return
    if key not in BUDGET:
        allowed = f"enlarge {', '.join(BUDGET)}, or change {ADDRESS}"
        raise ConfigError(f"-s {override}: a resumed run may only {allowed}; start another run")
    before: Any = saved
    for part in key.split("."):
        before = getattr(before, part)
    after = read_override(override)[1]
    if before is not None and after is not None and float(after) < before:
        raise ConfigError(f"-s {override}: the run had {key}={before}; a resumed run may only enlarge its budget")


def _budget_of(config: Config) -> list[str]:
    """The budget of the search as overrides, as far as it was given."""
    given = {key: getattr(config.search, key) for key in config.search.model_fields_set & {"seconds", "evaluations"}}
    return [f"search.{key}={value}" for key, value in given.items() if value is not None]
