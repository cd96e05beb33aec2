"""How processes of this package are started: on its own modules, never on what lies in the working directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

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
