"""How processes of this package are started: its own on its modules, never on what lies in the working directory; and
by a person, who types a command where no environment may be active."""

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


def module_command(module: str) -> Sequence[str]:
    """The command that runs ``module``. With ``-m`` alone Python imports from the working directory first."""
    return [sys.executable, "-P", "-m", module]


def module_environment() -> dict[str, str]:
    """This process's environment, in which that command finds the package also where it is not installed."""
    environment = dict(os.environ)
    installed = any(Path(place or ".").resolve() == _ROOT for place in sys.path[1:])
    if not installed and Path(sys.path[0] or ".").resolve() == _ROOT:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(_ROOT))))
    return environment


def shell_python() -> str:
    """How a shell starts this Python: by its name where that finds it, else by its path, quoted."""
    found = shutil.which("python")
    # Of an environment it is a link to the Python that others link to as well: the folder says whose it is.
    own = sys.executable
    same = found and _folder(found) == _folder(own) and os.path.realpath(found) == os.path.realpath(own)
    if same or not own:  # it is empty where a program has Python inside
        return "python"
    return shlex.quote(own)


def shell_command() -> str:
    """How a shell starts this package's command line."""
    python, script = shell_python(), shutil.which(SCRIPT)
    if python != "python" and script and _folder(script) == _folder(sys.executable):
        return SCRIPT
    return f"{python} -m collage_evo"


def _folder(path: str) -> Path:
    return Path(path).absolute().parent
