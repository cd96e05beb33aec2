"""Files: written whole or not at all; read so that whatever is wrong with one is told in one line that names it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from collage_evo.codec import from_json, to_json
from collage_evo.errors import CollageError, DamagedFile, shortened

T = TypeVar("T")
MADE_AGAIN = "delete it, and it is made again"
BUILD_ANEW = "build the region anew"
"""What to do about a file of a compiled piece."""


@contextlib.contextmanager
def reading(path: Path, mend: str, wrong: str = "is damaged") -> Iterator[None]:
    """Inside, ``path`` is read and what it holds is made of it: what is raised there is the fault of the file.

    A library may raise anything over a file that is not what it seems, and so may what takes its content apart.

    Args:
        path: of the file; a directory in its place is told as well.
        mend: what a person has to do.
        wrong: what to say of a file that can be read, but does not hold what it should.

    Raises:
        DamagedFile: for anything but a :class:`CollageError`, which says itself what to do.
    """
    try:
        yield
    except CollageError:
        raise
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read ({error.strerror or shortened(error)}): {mend}") from error
    except Exception as error:
        detail = f"{type(error).__name__}: {shortened(error, 200)}"
        raise DamagedFile(f"{path} {wrong} ({detail}): {mend}") from error


def read_json(path: Path, kind: type[T], mend: str = MADE_AGAIN) -> T:
    """What a JSON file holds as ``kind``: a dataclass, or a container of some, every value of the type it should be.

    Raises:
        DamagedFile: see :func:`reading`.
    """
    with reading(path, mend):
        return from_json(path.read_bytes(), kind)


def write_json(path: Path, kind: type[T], value: T, indent: int | None = None) -> None:
    """Make ``path`` what :func:`read_json` reads as the same ``value``, whole or not at all; infinity may be in it.

    Raises:
        OSError: see :func:`write_whole`.
    """
    write_whole(path, to_json(value, kind, indent))


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
