"""Command line: ``python -m collage_evo run | resume | show | pick | compare | ...``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

# Importing registers the commands, in the order of the help.
from collage_evo.cli import search, answers, proof, artifacts, studies, machine  # noqa: F401
from collage_evo.cli.app import app, in_options
from collage_evo.cli.stop import INTERRUPTED, leave
from collage_evo.errors import CollageError, printable, describing_system_errors
from collage_evo.modules import SCRIPT


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: errors become one line and an exit code, by the contract of the command line.

    ``arguments``: by default those of the process.
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in typed
    logging.basicConfig(level=logging.DEBUG if debug else logging.ERROR)
    logging.getLogger("collage_evo").setLevel(logging.DEBUG if debug else logging.WARNING)
    # These libraries warn about what this program handles itself.
    for name in ("onnx_ir", "onnxscript", "optuna", "alembic", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with describing_system_errors():
            # Typer makes completion for the name that starts the program; that of Python is not ours.
            code = app(typed, prog_name=SCRIPT, standalone_mode=False)
    except CollageError as error:
        if debug:
            raise
        print(printable(f"error: {in_options(str(error), typed)}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except TyperException as error:
        print(printable(f"error: {error.format_message().rstrip('.')}; see --help"), file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        leave()
    if code == INTERRUPTED:  # typer's code for an interrupt inside a command
        leave()
    sys.exit(code if isinstance(code, int) else 0)
