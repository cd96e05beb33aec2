"""Trust in functions of Python files: run only those that this user has named before.

A directory from elsewhere may name any file, its own among them, and a function runs with the rights of the user. So
each function that a user names for a run is recorded in this user's own state directory; others are refused without
``--trust``. The file is recorded by its path: anyone who may change a user's own files needs no run directory for
that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import platformdirs

from collage_evo.config import Config
from collage_evo.errors import InputError
from collage_evo.graph.load.functions import names_function
from collage_evo.target.private import open_private, own_directory


def functions_of(config: Config) -> list[str]:
    """The functions in ``config``, as ``file.py:function``."""
    return [text for text in (config.accuracy.metric, config.data.source) if text and names_function(text)]


def note_functions(named: Iterable[str]) -> None:
    """Record functions that the user named; if that cannot be written, ``--trust`` is required later."""
    new = sorted({_full(text) for text in named} - _noted())
    with suppress(OSError, InputError):
        if new:
            flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
            with os.fdopen(open_private(_file(), flags), "a", encoding="utf-8") as notes:
                notes.write("".join(f"{json.dumps(name)}\n" for name in new))


def require_noted(named: Iterable[str], place: Path, trust: bool = False) -> None:
    """Require that this user named the functions that ``place`` names; ``trust``: it may name any.

    Raises:
        InputError: a function was not named by this user on this machine.
    """
    unknown = [] if trust else sorted({_full(text) for text in named if names_function(text)} - _noted())
    if unknown:
        raise InputError(
            f"{place} names the function {unknown[0]}, which would run with your rights, and no run of yours on "
            "this machine named it: read it, then name it yourself or use --trust"
        )


def _full(text: str) -> str:
    file, _, function = text.rpartition(":")
    return f"{Path(file).expanduser().resolve()}:{function}"


def _file() -> Path:
    return own_directory(Path(platformdirs.user_state_dir("collage_evo")), "XDG_STATE_HOME") / "functions"


def _noted() -> set[str]:
    with suppress(OSError, InputError, ValueError), os.fdopen(open_private(_file(), os.O_RDONLY)) as notes:
        return {str(json.loads(line)) for line in notes}
    return set()
