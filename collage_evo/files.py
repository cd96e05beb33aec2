"""Files: atomic writes, and reads whose errors become one line that names the file."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from collage_evo.codec import from_json, to_json
from collage_evo.errors import CollageError, DamagedFile, InputError, shortened

T = TypeVar("T")
MADE_AGAIN = "delete it, and it is made again"
BUILD_ANEW = "build the region anew"
"""What to do about a file of a compiled piece."""
TICK_NS = 20_000_000
"""Steps of file systems' times, nanoseconds: at most ten milliseconds on Linux."""


@contextlib.contextmanager
def reading(path: Path, mend: str, wrong: str = "is damaged") -> Iterator[None]:
    """Context that reads and parses ``path``: exceptions inside it are the fault of the file.

    A library may raise anything over a damaged file, and so may a parser of its content.

    Args:
        path: of the file; a directory in its place is an error as well.
        mend: what the user has to do.
        wrong: the message for a file that can be read, but whose content is something else.

    Raises:
        DamagedFile: for anything but a :class:`CollageError`, whose message already explains what to do.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DamagedFile(f"{path} is no plain file: {mend}")  # who opens a pipe waits for its writer
    try:
        yield
    except CollageError:
        raise
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read ({error.strerror or shortened(error)}): {mend}") from error
    except Exception as error:
        detail = f"{type(error).__name__}: {shortened(error, 200)}"
        raise DamagedFile(f"{path} {wrong} ({detail}): {mend}") from error


Stamps = Mapping[Path, tuple[int, ...]]
"""What changes of a file when it is written or replaced."""


def stamps_of(paths: Iterable[Path]) -> Stamps:
    """The stamps of those of the files at ``paths`` that are there."""
    return {path: _stamp(path) for path in paths if path.is_file()}


def _stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    if abs(time.time_ns() - status.st_mtime_ns) < TICK_NS:
        time.sleep(TICK_NS / 1e9)  # a write within the same tick would leave no trace
        status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def require_unwritten(before: Stamps) -> None:
    """Require that nobody wrote to the files since their stamps were taken: what was read may be half old, half new.

    Raises:
        InputError: somebody did.
    """
    for path, stamp in before.items():
        if not path.is_file() or _stamp(path) != stamp:
            raise InputError(f"{path} was written while it was read: start again when it is complete")


def read_json(path: Path, kind: type[T], mend: str = MADE_AGAIN) -> T:
    """The content of a JSON file as ``kind``: a dataclass, or a container of some, with every value checked against
    its type.

    Raises:
        DamagedFile: see :func:`reading`.
    """
    with reading(path, mend):
        return from_json(path.read_bytes(), kind)


@dataclass(frozen=True)
class Stored(Generic[T]):
    """A JSON file of a run: its ``path`` in the run directory, and the type of the value that it holds."""

    path: str
    kind: type[T]


def write_json(path: Path, kind: type[T], value: T, indent: int | None = None) -> None:
    """Write ``value`` to ``path`` atomically, for :func:`read_json`; it may contain infinity.

    Raises:
        OSError: see :func:`write_whole`.
    """
    write_whole(path, to_json(value, kind, indent))


def write_whole(path: Path, content: str | bytes, keep: Path | None = None) -> None:
    """Write ``content`` (text as UTF-8) to the file ``path`` atomically: it is on disk before it replaces an earlier
    file.

    Args:
        path: in a directory that exists; not for several threads at once.
        content: all of it.
        keep: new path of the earlier file; without it, that one is lost.

    Raises:
        OSError: it could not be written; ``path`` is then unchanged.
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
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error  # a write error names no file
    _sync(path.parent)


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Make ``target``, which does not exist, the same file as ``source``; where links fail, a copy of it.

    Whoever changes one changes the other: replace such a file, and never write into it.
    """
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _sync(directory: Path) -> None:
    """Make the renames in ``directory`` themselves durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def files_in(directory: Path) -> dict[str, Path]:
    """Every file below ``directory``, by its name there."""
    return {p.relative_to(directory).as_posix(): p for p in sorted(directory.rglob("*")) if p.is_file()}
