"""Paths of a run's answers, and the commands on them in the form that users type."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from collage_evo.modules import SCRIPT, shell_command

COMMAND = shell_command()
PICKED = "picked"
"""The folder of a run directory with the answers for other budgets, each in one named after its budget."""

ANNOTATED = "annotated.onnx"
"""File of a run directory: the user's model with who runs each node."""


DETAILS = "details.log"
"""File of a run directory with the original messages of libraries about failures."""


def home_of(answer: Path) -> Path:
    """The run directory whose search found the answer in ``answer``: that itself, or the one it was picked from."""
    if answer.absolute().parent.name != PICKED:
        return answer
    return answer.parent.parent if len(answer.parts) > 1 else answer.absolute().parent.parent


def command_line() -> str:
    """The command that this process runs, as the user typed it; empty if another program called the package."""
    program = Path(sys.argv[0])
    if program.name != SCRIPT and program.parts[-2:] != ("collage_evo", "__main__.py"):
        return ""
    return f"{COMMAND} {shlex.join(sys.argv[1:])}"


def command(verb: str, directory: Path, more: str = "") -> str:
    """``verb`` of the command line on ``directory``, quoted where a shell needs that."""
    return " ".join(filter(None, (COMMAND, verb, shlex.quote(str(directory)), more)))
