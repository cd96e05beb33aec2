"""Run directory: who may write into it, what a run saves first, and what a resumed run may change."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from collage_evo.config import Config, changed, dump_config, parse_config
from collage_evo.errors import ConfigError, InputError
from collage_evo.files import read_json, reading, write_json, write_whole
from collage_evo.graph.load.functions import names_function
from collage_evo.graph.load.load import ModelFile
from collage_evo.models.builtin import PREFIX
from collage_evo.report.places import COMMAND, command
from collage_evo.report.result import anew, goes_on
from collage_evo.run.at_work import require_idle
from collage_evo.run.budget import SEARCH_SECONDS, SEARCH_SKIPPED, USUAL_S
from collage_evo.run.machine import require_machine
from collage_evo.run.store import Store
from collage_evo.run.trusted import functions_of, note_functions, require_noted
from collage_evo.search.evolution import checkpoint
from collage_evo.yaml_values import Overrides, by_key, load_yaml

CONFIG = "config.yaml"
RUN = "run.json"
"""File with the kind of the run, one of ``KINDS``."""
Kind = Literal["run", "tune", "sweep"]
KINDS: tuple[Kind, ...] = get_args(Kind)
IN_MEMORY = "given"
"""Folder for models and data that were passed in memory."""
MADE = (
    *(CONFIG, RUN, "profiles.json", "checkpoint.json", "checkpoint.prev.json", "baselines.json", "fallbacks.json"),
    *("result.json", "report.html", "details.log", "best.collage", ".best.collage.new", ".best.collage.before"),
    *("study.db", "study.db-*", "tune.db", "tune.db-*", "worker-[0-9]*.log"),
    *("history.png", "parallel.png", "importance.png"),
    *("baselines", "fallbacks", "work", "picked", "profiles", "trials", IN_MEMORY),
)
"""Patterns for the names of all that a run, a sweep or a tuning writes into its directory."""
BUDGET = ("search.seconds", "search.evaluations", "tune.trials", "tune.seconds", "sweep.trials")
"""Keys that may change when a run goes on, and only upwards."""
ADDRESS = "fitness.address"
"""Keys that may change freely: a restarted scheduler has another address."""
CHOSEN = "search.ga."
"""Prefixes of keys that a run may have chosen anew (``search.tune``, ``tune``)."""
ON_CORES = " on cores "


@dataclass(frozen=True)
class _Begun:
    """Content of ``run.json``."""

    kind: Kind


def run_directory(config: Config, source: str, out: Path | None) -> Path:
    """Path of a run: ``--out``, else the configuration's ``output.dir``, else its name below ``runs/``."""
    if out is not None:
        return out
    if config.output.dir is not None:
        return Path(config.output.dir)
    name = source.removeprefix(PREFIX).partition("?")[0]
    return Path("runs") / Path(name).stem


def start_run(
    directory: Path,
    config: Config,
    *,
    resume: bool = False,
    overwrite: bool = False,
    kind: Kind = "run",
    source: str = "",
    in_memory: Collection[str] = (),
) -> Config:
    """Make the run directory and save the configuration in it; returns the configuration to use.

    Args:
        directory: of the run.
        config: of the run.
        resume: continue the run that is there.
        overwrite: remove the run that is there, once the new one's model and data were found.
        kind: of the run.
        source: path of the configuration file, if there is one.
        in_memory: paths in the configuration that the caller writes later, from memory.

    Raises:
        InputError: the directory is in use and neither ``resume`` nor ``overwrite`` was given, both were, or the
            run to continue is of another kind.
        ConfigError: a given key differs from its value in the run to continue, and is not one of its limits.
    """
    if resume and overwrite:
        raise InputError("resume continues the existing run, overwrite deletes it: give only one of them")
    note_functions(functions_of(config))
    used = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if used and (resume or overwrite):
        require_idle(directory)
    if used and resume:
        if (directory / CONFIG).is_file() and (had := kind_of_run(directory)) != kind:
            raise InputError(f"{directory} is a {had}, not a {kind}: continue with: {command('resume', directory)}")
        saved = reopen_run(directory)
        reopened = enlarge_budget(directory, saved, _changes(directory, config, saved))
        require_noted(functions_of(reopened), directory)
        return reopened
    if used and overwrite:
        _require_overwritable(directory, config, source, in_memory)
        remove_run(directory)
    elif used:
        raise InputError(f"{directory} is in use: choose --resume to go on, --overwrite to start over, or --out")
    directory.mkdir(parents=True, exist_ok=True)
    save_run(directory, config, kind)
    return config


def _require_overwritable(directory: Path, config: Config, source: str, in_memory: Collection[str]) -> None:
    """Require that ``directory`` is a run's and contains nothing that the new run reads, which must exist.

    Raises:
        CollageError: it is not, it does, the model or the data cannot be read, or this machine lacks what the new
            run asks for; nothing was removed.
    """
    choose = "choose another --out"
    if not directory.is_dir() or not (directory / RUN).is_file():
        raise InputError(f"{directory} is not a run directory (no {RUN}), so it is not overwritten: {choose}")
    read_json(directory / RUN, _Begun, choose)
    place, here = directory.resolve(), Path.cwd().resolve()
    if here.is_relative_to(place):
        raise InputError(f"{directory} contains the working directory, so it is not overwritten: {choose}")
    for read in (source, config.model.source, config.data.source, config.accuracy.metric, config.search.like):
        if not read or read in in_memory or read.startswith(PREFIX):
            continue
        file = Path(read.rpartition(":")[0] if names_function(read) else read).expanduser()
        require_outside(directory, file)
        if read == config.data.source and not file.exists():
            raise InputError(f"no data at {read}: give a file or a folder that exists")
    require_machine(config)
    if config.model.source not in in_memory:
        _ = ModelFile(config.model.source, config.model.seed).declared  # raises if it cannot be read


def require_outside(directory: Path, read: Path) -> None:
    """Require that ``read``, which a new run reads, is not in the ``directory`` that it overwrites.

    Raises:
        InputError: it is.
    """
    if read.exists() and read.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"{directory} contains {read}, which the run reads: move it, or choose another --out")


def remove_run(directory: Path) -> None:
    """Remove the files of a run from ``directory``, and the directory if nothing else is in it."""
    for path in [match for name in MADE for match in directory.glob(name)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not directory.is_symlink() and not any(directory.iterdir()):
        directory.rmdir()


def _changes(directory: Path, asked: Config, saved: Config) -> dict[str, Any]:
    """Changes that ``asked`` makes to a run that goes on, all of them allowed.

    Raises:
        ConfigError: a given key differs from the run's value and may not change.
    """
    changes = {}
    for key, value, before in _other_values(asked.model_dump(exclude_unset=True), saved.model_dump()):
        if key in (*BUDGET, ADDRESS):
            changes[key] = value
        elif not key.startswith(CHOSEN):
            mend = f"choose another --out, or continue with: {command('resume', directory)}"
            raise ConfigError(f"the run in {directory} has {key}={before}, not {value}: {mend}")
    return {key: value for key, value in changes.items() if value is not None}


def _other_values(
    asked: Mapping[str, Any], had: Mapping[str, Any], section: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Keys of ``asked`` that have another value in ``had``: the key, its value in the one and in the other."""
    for name, value in asked.items():
        before = had.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping | None):
            yield from _other_values(value, before or {}, f"{section}{name}.")
        elif value != before:
            yield f"{section}{name}", value, before


def move_run(directory: Path, cores: Sequence[int]) -> None:
    """Move the run in ``directory``, if there is one, to other cores of the same machine."""
    if not (directory / CONFIG).is_file():
        return
    save_config(directory, reopen_run(directory).replacing("target", cores=list(cores)))
    if cores:
        checkpoint.move(directory, lambda target: target.partition(ON_CORES)[0] + on_cores(cores))


def on_cores(cores: Sequence[int]) -> str:
    """Suffix of a checkpoint's description of its target."""
    return f"{ON_CORES}{list(cores)}"


def save_run(directory: Path, config: Config, kind: Kind) -> None:
    """Write the files of a later ``resume``: the configuration, and which of ``KINDS`` the run is."""
    save_config(directory, config)
    write_json(directory / RUN, _Begun, _Begun(kind))


def save_config(directory: Path, config: Config) -> None:
    """Write the given configuration of a run atomically, without the run's own decisions."""
    write_whole(directory / CONFIG, dump_config(config, brief=True))


def kind_of_run(directory: Path) -> Kind:
    """Which of ``KINDS`` the run in ``directory`` is.

    Raises:
        DamagedFile: the record is missing or invalid.
    """
    mend = "start again with the command that it was started with, and --overwrite"
    return read_json(directory / RUN, _Begun, mend).kind


def require_records(directory: Path) -> None:
    """Require the records that the search in ``directory``, if there was one, continues from. Changes nothing.

    Raises:
        InputError: they are gone.
    """
    if not goes_on(directory):
        missing = f"{directory / 'work'}, from which the search continues, is missing or incomplete"
        raise InputError(f"{missing}: {anew(directory)}")


def discard_unbegun(directory: Path) -> None:
    """Remove a run directory without measurements, so that a corrected command can use its name."""
    try:
        require_idle(directory)
    except InputError:  # another process works there and owns the directory
        return
    if (directory / CONFIG).is_file() and not any(directory.rglob("baselines.json")):
        remove_run(directory)


def reopen_run(directory: Path) -> Config:
    """The saved configuration of a run.

    Raises:
        InputError: no run there, or its configuration is damaged.
    """
    path = directory / CONFIG
    if not directory.is_dir():
        raise InputError(f"no run directory {directory}: start one with: {COMMAND} run MODEL")
    if not path.exists():
        raise InputError(f"{directory} holds no {CONFIG}, so it is not a run: start one with run MODEL")
    with reading(path, "start again with run MODEL --overwrite"):
        return parse_config(load_yaml(path.read_text()), (), str(path))


def enlarge_budget(directory: Path, saved: Config, overrides: Overrides) -> Config:
    """The configuration that the run in ``directory`` ``saved``, with a larger budget where ``overrides`` give one;
    it is saved.

    Raises:
        ConfigError: an override changes a key other than the budget and the cluster's address, or makes the
            budget smaller.
    """
    if not (values := by_key(overrides)):
        return saved
    if refused := [key for key in values if key not in (*BUDGET, ADDRESS)]:
        allowed = f"enlarge {', '.join(BUDGET)}, or change {ADDRESS}"
        raise ConfigError(f"-s {refused[0]}: a resumed run may only {allowed}; start another run")
    config = changed(saved, values, "-s")
    for key in values.keys() & set(BUDGET):
        had, has = _budget(saved, key, directory), _budget(config, key, directory)
        if had is not None and has is not None and has < had:
            text = f"-s {key}={values[key]}: the run had {key}={had:g}"
            raise ConfigError(f"{text}; a resumed run may only enlarge its budget")
    save_config(directory, config)
    return config


def _budget(config: Config, key: str, directory: Path) -> float | None:
    """The given value of one of ``BUDGET``, or the decided one; None for no limit."""
    section, name = key.split(".")
    value: float | None = getattr(getattr(config, section), name)
    if key != "search.seconds" or value is not None:
        return value
    store = Store(directory / "work")
    return 0.0 if store.get(SEARCH_SKIPPED, bool) else store.get(SEARCH_SECONDS, float) or USUAL_S
