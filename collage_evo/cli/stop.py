"""Ctrl-C handling: a command prints one line with the command that continues its run, and exits with code 130."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from collage_evo.report.places import command

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@contextlib.contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """Context of work on the run in ``directory``: Ctrl-C prints the command that continues it."""
    try:
        yield
    except KeyboardInterrupt:
        from collage_evo.run.directory import CONFIG

        leave(directory if (directory / CONFIG).is_file() else None)


def leave(directory: Path | None = None) -> NoReturn:
    """Exit at once: worker pools must not delay a user who pressed Ctrl-C."""
    how = f"; it goes on with: {command('resume', directory)}" if directory else ""
    with contextlib.suppress(OSError):  # the reader of the pipe may have been stopped too
        print(f"stopped{how}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(INTERRUPTED)
