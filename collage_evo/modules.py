"""Commands that start processes of this package.

Its own processes import its modules, never files of the working directory; the commands for users work without an
active environment."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPT = "collage-evo"
"""The console script that pip makes."""
_ROOT = Path(__file__).resolve().parents[1]


def module_command(module: str, python: str = "") -> Sequence[str]:
    """The command that runs ``module`` with this interpreter, or with ``python``. With ``-m`` only, Python imports
    from the working directory first."""
    return [python or sys.executable, "-P", "-m", module]


def module_environment() -> dict[str, str]:
    """This process's environment, in which that command finds the package even if it is not installed."""
    environment = dict(os.environ)
    installed = any(Path(place or ".").resolve() == _ROOT for place in sys.path[1:])
    if not installed and Path(sys.path[0] or ".").resolve() == _ROOT:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(_ROOT))))
    return environment


def shell_python() -> str:
    """How a shell starts this Python: by its name if the shell finds it, else by its path, quoted."""
    python = shutil.which("python")
    # In an environment it is a link to a Python that other environments link to as well: the folder identifies it.
    running = sys.executable
    same = python and _folder(python) == _folder(running) and os.path.realpath(python) == os.path.realpath(running)
    if same or not running:  # it is empty if a program embeds Python
        return "python"
    return shlex.quote(running)


def shell_command() -> str:
    """How a shell starts this package's command line."""
    python, script = shell_python(), shutil.which(SCRIPT)
    if python != "python" and script and _folder(script) == _folder(sys.executable):
        return SCRIPT
    return f"{python} -m collage_evo"


def _folder(path: str) -> Path:
    return Path(path).absolute().parent
