"""Run directory: who may write into it, what a run saves first, and what a resumed run may change."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

from collage_evo.answer.delivery import REPLACED
from collage_evo.config import Config, changed, dump_config, parse_config
from collage_evo.errors import CollageError, ConfigError, InputError, SystemRefuses, system_message
from collage_evo.files import read_json, reading, write_json, write_whole
from collage_evo.graph.load.functions import names_function
from collage_evo.graph.load.load import ModelFile
from collage_evo.hardware.target import Target
from collage_evo.models import PREFIX
from collage_evo.report.finished import anew, goes_on
from collage_evo.report.places import COMMAND, command
from collage_evo.run.at_work import LOCK, at_work
from collage_evo.run.budget import SEARCH_SECONDS, SEARCH_SKIPPED, USUAL_S
from collage_evo.run.machine import require_machine, usable
from collage_evo.run.store import Store
from collage_evo.run.trusted import ADDRESS, note, outward, require_noted
from collage_evo.runtime.manifest import BEST
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
    *(BEST, f".{BEST}.new", f".{BEST}.before", "result.json", "report.html", "annotated.onnx", "details.log"),
    *(CONFIG, "profiles.json", "checkpoint.json", "checkpoint.prev.json", "baselines.json", "fallbacks.json"),
    *("study.db", "study.db-*", "tune.db", "tune.db-*", "worker-[0-9]*.log"),
    *("history.png", "parallel.png", "importance.png"),
    *("baselines", "fallbacks", "work", "picked", "profiles", "trials", IN_MEMORY),
    RUN,
)
"""Patterns for the names of all that a run, a sweep or a tuning writes into its directory, in the order in which they
are moved: the answer first, and last the file without which they are no run."""
BUDGET = ("search.seconds", "search.evaluations", "tune.trials", "tune.seconds", "sweep.trials")
"""Keys that may change when a run goes on, and only upwards."""
CHOSEN = "search.ga."
"""Prefixes of keys that a run may have chosen anew (``search.tune``, ``tune``)."""


@dataclass(frozen=True)
class _Begun:
    """Content of ``run.json``: ``name`` is one that no other run has."""

    kind: Kind
    name: str = ""


def run_directory(config: Config, source: str, out: Path | None) -> Path:
    """Path of a run: ``--out``, else the configuration's ``output.dir``, else its name below ``runs/``."""
    chosen = config.output.dir if out is None else out
    name = source.removeprefix(PREFIX).partition("?")[0]
    return Path("runs") / Path(name).stem if chosen is None else Path(chosen)


def start_run(
    directory: Path,
    config: Config,
    *,
    resume: bool = False,
    overwrite: bool = False,
    kind: Kind = "run",
    source: str = "",
    in_memory: Collection[str] = (),
    trust: bool = False,
) -> Config:
    """Make the run directory and save the configuration in it; returns the configuration to use.

    Args:
        directory: of the run.
        config: of the run.
        resume: continue the run that is there.
        overwrite: replace the run that is there: it is set aside, and removed when the new one has an answer.
        kind: of the run.
        source: path of the configuration file, if there is one.
        in_memory: paths in the configuration that the caller writes later, from memory.
        trust: the run may use whatever its directory and ``config`` name, and the user did not name it.

    Raises:
        InputError: the directory is in use and neither ``resume`` nor ``overwrite`` was given, both were, or the
            run to continue is of another kind or from elsewhere.
        ConfigError: a given key differs from its value in the run to continue, and is not one of its limits.
    """
    if resume and overwrite:
        raise InputError("resume continues the existing run, overwrite deletes it: give only one of them")
    if not trust:
        note(outward(config, directory))
    with at_work(directory):
        used = any(path.name != LOCK for path in directory.iterdir())
        if used and resume:
            if (directory / CONFIG).is_file() and (had := kind_of_run(directory)) != kind:
                advice = f"continue with: {command('resume', directory)}"
                raise InputError(f"{directory} is a {had}, not a {kind}: {advice}")
            saved = reopen_run(directory)
            reopened = enlarge_budget(directory, saved, _changes(directory, config, saved))
            require_trusted(directory, reopened, trust)
            return reopened
        if used:
            if overwrite:
                give_back(directory)  # of a run that was killed before it had an answer
                _require_overwritable(directory, config, source, in_memory)
            _require_ready(config, in_memory)
            if not overwrite:
                choose = "choose --resume to go on, --overwrite to start over, or --out"
                raise InputError(f"{directory} is in use: {choose}")
            shutil.rmtree(directory / REPLACED, ignore_errors=True)
            _move(directory, directory / REPLACED)
        save_run(directory, config, kind)
    return config


def _require_ready(config: Config, in_memory: Collection[str]) -> None:
    """Require that the model and the data of a new run exist, and that this machine has what it asks for.

    Raises:
        CollageError: they cannot be read, or the machine lacks something.
    """
    data = config.data.source
    if data and data not in in_memory and not data.startswith(PREFIX) and not _file_of(data).exists():
        raise InputError(f"no data at {data}: give a file or a folder that exists")
    require_machine(config)
    if config.model.source not in in_memory:
        _ = ModelFile(config.model.source, config.model.seed).declared  # raises if it cannot be read


def _file_of(read: str) -> Path:
    """The path in a value that is one, or ``file.py:function``."""
    return Path(read.rpartition(":")[0] if names_function(read) else read).expanduser()


def _require_overwritable(directory: Path, config: Config, source: str, in_memory: Collection[str]) -> None:
    """Require that ``directory`` is a run's and contains nothing that the new run reads.

    Raises:
        InputError: it is not, or it does; nothing was removed.
    """
    choose = "choose another --out"
    if not (directory / RUN).is_file() or not (directory / CONFIG).is_file():
        raise InputError(f"{directory} is not a run directory (no {RUN}), so it is not overwritten: {choose}")
    read_json(directory / RUN, _Begun, choose)
    if Path.cwd().resolve().is_relative_to(directory.resolve()):
        raise InputError(f"{directory} contains the working directory, so it is not overwritten: {choose}")
    for read in (source, config.model.source, config.data.source, config.accuracy.metric, config.search.like):
        if read and read not in in_memory and not read.startswith(PREFIX):
            require_outside(directory, _file_of(read))


def require_outside(directory: Path, read: Path) -> None:
    """Require that ``read``, which a new run reads, is not in the ``directory`` that it overwrites.

    Raises:
        InputError: it is.
    """
    if read.exists() and read.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"{directory} contains {read}, which the run reads: move it, or choose another --out")


def remove_run(directory: Path) -> None:
    """Remove the files of a run from ``directory``, and nothing else."""
    removed = directory / ".removed"
    shutil.rmtree(removed, ignore_errors=True)
    _move(directory, removed)  # in one go: processes of the run that still end find no place to write to
    shutil.rmtree(removed, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    """Move all that a run made from one directory to another."""
    target.mkdir(exist_ok=True)
    for path in [match for name in MADE for match in source.glob(name)]:
        path.replace(target / path.name)


def give_back(directory: Path) -> bool:
    """Remove a run without an answer in favour of the one that it was to replace; False if there is no such pair."""
    before = directory / REPLACED
    if not before.is_dir() or (directory / BEST).exists():
        return False
    if (before / RUN).exists():  # else a kill came while that run was moved
        remove_run(directory)
    _move(before, directory)
    before.rmdir()
    return True


@contextlib.contextmanager
def undone_without_answer(directory: Path) -> Iterator[None]:
    """Context of a run that was begun in ``directory``: if it fails before it measured anything, its files are
    removed, so that a corrected command can use the name; one that replaces another gives way to that one unless it
    has an answer."""
    try:
        yield
    except BaseException as error:
        if give_back(directory):
            error.add_note(f"{directory} holds the run from before")
        elif isinstance(error, CollageError | OSError) and not _has_measured(directory):
            remove_run(directory)
        raise


@contextlib.contextmanager
def telling_to_resume(directory: Path) -> Iterator[None]:
    """Context of work on the run in ``directory``: an error of the operating system says how the run continues.

    Raises:
        SystemRefuses: also in place of an OSError, once something was measured.
    """
    try:
        yield
    except (OSError, SystemRefuses) as error:
        if not _has_measured(directory):
            raise
        text = system_message(error) if isinstance(error, OSError) else str(error)
        raise SystemRefuses(f"{text}; then continue with: {command('resume', directory)}") from error


def _has_measured(directory: Path) -> bool:
    """Whether there is an answer or another measurement, which a person may know of."""
    places = (place for name in (BEST, "baselines.json") for place in directory.rglob(name))
    return any(REPLACED not in place.parts for place in places)


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
    if (directory / CONFIG).is_file():
        save_config(directory, reopen_run(directory).replacing("target", cores=list(cores)))


def target_of(config: Config) -> str:
    """Description of a search's target on this machine for its checkpoint: what decides times, so not which cores.

    Raises:
        CollageError: cores or a device that the configuration asks for are not there.
    """
    target = Target.here(config.target.device, config.target.threads)
    return f"{target.description} on {len(usable(config))} core(s)"


def require_same_target(directory: Path, config: Config) -> None:
    """Require that the search in ``directory``, if there is one, was on a target like that of ``config``.

    Raises:
        DamagedFile: it was on another one, or its checkpoint is damaged.
    """
    if checkpoint.exists(directory):
        checkpoint.require_target(directory, target_of(config))


def save_run(directory: Path, config: Config, kind: Kind) -> None:
    """Write the files of a later ``resume``: the configuration, and which of ``KINDS`` the run is."""
    save_config(directory, config)
    begun = _Begun(kind, secrets.token_hex(16))
    write_json(directory / RUN, _Begun, begun)
    note([_made_by(begun)])


def save_config(directory: Path, config: Config) -> None:
    """Write the given configuration of a run atomically, without the run's own decisions."""
    write_whole(directory / CONFIG, dump_config(config, brief=True))


def kind_of_run(directory: Path) -> Kind:
    """Which of ``KINDS`` the run in ``directory`` is.

    Raises:
        DamagedFile: the record is missing or invalid.
    """
    return _begun(directory).kind


def _begun(directory: Path) -> _Begun:
    mend = "start again with the command that it was started with, and --overwrite"
    return read_json(directory / RUN, _Begun, mend)


def _made_by(begun: _Begun) -> str:
    return f"compiled code of the run {begun.name}"


def require_trusted(directory: Path, config: Config, trust: bool = False) -> None:
    """Require that this user made the run in ``directory``, and named all that it and ``config`` lead to; ``trust``:
    or trusts it.

    Raises:
        InputError: not so, or it contains something that is no plain file.
    """
    named = {*outward(config, directory), *links_in(directory), _made_by(_begun(directory))}
    require_noted(named, directory, trust)


def links_in(directory: Path) -> Iterator[str]:
    """The links in ``directory``, of which a run makes none, as :func:`~collage_evo.run.trusted.outward` has texts.

    Raises:
        InputError: it contains something that is no plain file.
    """
    for place, folders, files in os.walk(directory):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink():
                yield f"link {path} to {path.readlink()}"
            elif not (path.is_file() or path.is_dir()):
                raise InputError(f"{path} is no plain file: remove it")


def require_records(directory: Path) -> None:
    """Require the records that the search in ``directory``, if there was one, continues from. Changes nothing.

    Raises:
        InputError: they are gone.
    """
    if not goes_on(directory):
        missing = f"{directory / 'work'}, from which the search continues, is missing or incomplete"
        raise InputError(f"{missing}: {anew(directory)}")


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
    if ADDRESS in values:
        note(outward(config, directory, [ADDRESS]))
    save_config(directory, config)
    return config


def _budget(config: Config, key: str, directory: Path) -> float | None:
    """The given value of one of ``BUDGET``, or the decided one; None for no limit."""
    value: float | None = attrgetter(key)(config)
    if key != "search.seconds" or value is not None:
        return value
    store = Store(directory)
    return 0.0 if store.get(SEARCH_SKIPPED) else store.get(SEARCH_SECONDS) or USUAL_S
