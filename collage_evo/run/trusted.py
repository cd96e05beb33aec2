"""Trust in what a run uses outside of its directory: only what this user has named before, unless asked to.

A directory from elsewhere may name any file as code, data or cache, its own among them, and any address, all of which
a run would use with the rights of the user. So each that a user names for a run is recorded in this user's own state
directory; others are refused without ``--trust``. A file is recorded by its path: anyone who may change a user's own
files needs no run directory for that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import platformdirs

from collage_evo.config import Config, changed
from collage_evo.errors import InputError
from collage_evo.graph.load.functions import names_function
from collage_evo.hardware.private import open_private, own_directory
from collage_evo.models import PREFIX

CODE = ("accuracy.metric", "data.source")
"""Keys that may name a function of a Python file."""
ADDRESS = "fitness.address"
"""Key of an address whose answers are unpickled."""
CACHE = "cache.dir"
"""Key of a directory that is written to, and whose compiled code is loaded."""
OUTWARD = (*CODE, "model.source", "search.like", CACHE, ADDRESS)
"""All keys that lead out of a run directory."""


def outward(config: Config, directory: Path, keys: Iterable[str] = OUTWARD) -> set[str]:
    """What ``config``, of a sweep that of each trial, names outside of ``directory``: texts with key and value."""
    space = [(key, value) for key, spec in config.sweep.space.items() for value in spec.get("choices") or ()]
    configs = [config, *(changed(config, dict([choice]), "sweep.space") for choice in space)]
    named = {(key, _full(key, attrgetter(key)(one) or "", directory)) for one in configs for key in keys}
    return {f"{key} {full}" for key, full in named if full}


def _full(key: str, value: str, directory: Path) -> str:
    """``value`` independent of the working directory; empty if it leads nowhere."""
    if key == ADDRESS:
        return value
    if key in CODE and names_function(value):
        file, _, function = value.rpartition(":")
        return f"{Path(file).expanduser().resolve()}:{function}"
    if not value or key == "accuracy.metric" or value.startswith(PREFIX):
        return ""
    path = (Path(value) if key in (CACHE, "search.like") else Path(value).expanduser()).resolve()
    leads = key == CACHE or (path.exists() and not path.is_relative_to(directory.resolve()))
    return str(path) if leads else ""


def note(named: Iterable[str]) -> None:
    """Record what the user named; if that cannot be written, ``--trust`` is required later."""
    new = sorted(set(named) - _noted())
    with suppress(OSError, InputError):
        if new:
            flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
            with os.fdopen(open_private(_file(), flags), "a", encoding="utf-8") as notes:
                notes.write("".join(f"{json.dumps(name)}\n" for name in new))


def require_noted(named: Iterable[str], place: Path, trust: bool = False) -> None:
    """Require that this user named all that ``place`` names; ``trust``: it may name anything.

    Raises:
        InputError: something was not named by this user on this machine.
    """
    if unknown := [] if trust else sorted(set(named) - _noted()):
        raise InputError(
            f"{place} would use with your rights what no run of yours on this machine named: {', '.join(unknown)}; "
            "look at it, then give --trust to resume, pick or compare"
        )


def _file() -> Path:
    return own_directory(Path(platformdirs.user_state_dir("collage_evo")), "XDG_STATE_HOME") / "named"


def _noted() -> set[str]:
    with suppress(OSError, InputError, ValueError), os.fdopen(open_private(_file(), os.O_RDONLY)) as notes:
        return {str(json.loads(line)) for line in notes}
    return set()
