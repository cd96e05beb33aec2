"""Files that are whole or not there: takes a path and its content, leaves nothing half written after a kill."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes, keep: Path | None = None) -> None:
    """Make ``content`` (text as UTF-8) the file ``path``, on disk before it takes the place of what was there.

    Args:
        path: in a directory that exists; not for several threads at once.
        content: all of it.
        keep: where the file that ``path`` names so far goes; without it, that one is lost.

    Raises:
        OSError: it could not be written; ``path`` then is as it was.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with fresh.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None:
            os.replace(path, keep)
        os.replace(fresh, path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error  # writing names no file
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Make the renames in ``directory`` themselves durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
