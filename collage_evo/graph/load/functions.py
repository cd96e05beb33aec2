"""The user's own function: loads what ``file.py:function`` names."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collage_evo.errors import InputError, one_line


def names_function(text: str) -> bool:
    """Whether ``text`` is written as ``file.py:function``."""
    file, _, function = text.rpartition(":")
    return file.endswith(".py") and function.isidentifier()


def load_function(text: str) -> Callable[..., Any]:
    """The function that ``file.py:function`` names. Runs the file, which may import its neighbours, also later.

    Raises:
        InputError: there is no such file or function, or the file fails to run.
    """
    file, _, name = text.rpartition(":")
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise InputError(f"no file {file}: write {text!r} as file.py:function")
    spec = importlib.util.spec_from_file_location(f"{path.stem} of {path.parent}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} cannot be imported: give a file of Python code")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look for it there
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # a script that calls sys.exit must not end this process
        raise InputError(f"{file} cannot be imported: {type(error).__name__}: {one_line(error)}") from error
    finally:
        # Last, so that imports inside the function work, but hide no library's module of the same name.
        sys.path.remove(str(path.parent))
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{file} defines no function {name!r}")
    return function


def file_being_imported() -> str:
    """The file that :func:`load_function` is importing now; empty if it is importing none."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not load_function.__code__:
        frame = frame.f_back
    return str(frame.f_locals["file"]) if frame is not None else ""
