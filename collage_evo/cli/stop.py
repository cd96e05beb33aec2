"""How a command ends that Ctrl-C stopped: with one line that says how its run goes on, and exit code 130."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from collage_evo.report.places import command

INTERRUPTED = 130
"""Exit code of who was stopped by Ctrl-C."""


@contextlib.contextmanager
def resumable(directory: Path) -> Iterator[None]:
    """Around what works on the run in ``directory``: who stops it is told the command that goes on with it."""
    try:
        yield
    except KeyboardInterrupt:
        from collage_evo.run.directory import CONFIG

        leave(directory if (directory / CONFIG).is_file() else None)


def leave(directory: Path | None = None) -> NoReturn:
    """End at once: worker pools must not keep a person waiting who pressed Ctrl-C."""
    how = f"; it goes on with: {command('resume', directory)}" if directory else ""
    with contextlib.suppress(OSError):  # who reads it may have been stopped too
        print(f"stopped{how}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    os._exit(INTERRUPTED)
