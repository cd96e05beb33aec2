"""Verified files of an artifact: their digests, and detection of any change since the check.

Files may have links in other artifacts. Making or removing a link changes the time of the inode, as a change of its
content does: the file is then hashed again, and a library that was loading it loads it again. Who writes into mapped
memory need not change any time, so no digest is remembered from one load to the next, nor to a late load.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from collage_evo.digests import digest_of_open, remembers
from collage_evo.errors import InputError

T = TypeVar("T")
LOADS = 3
"""Times that a library loads files at most while links to them are made or removed. Chosen."""
Stamp = tuple[int, int, int, int, int]
"""Device, inode, bytes, and times of the last change of content and inode: differs after a write or replacement."""


@dataclass(frozen=True)
class CheckedFile:
    """A file, the SHA-256 of its content, and its stamp from before it was read."""

    path: Path
    digest: str
    stamp: Stamp
    root: Path | None = None
    """The directory that it belongs to, all of it or nothing."""

    @property
    def late(self) -> CheckedFile:
        """The same for a load at a later time, which reads it again, whatever its stamp is then."""
        return replace(self, stamp=(*self.stamp[:3], 0, 0))


def check_file(path: Path, nbytes: int | None = None) -> CheckedFile:
    """The digest of a plain file.

    Args:
        path: of the file; links are not followed.
        nbytes: its size, where known: a file of another size is not read.

    Raises:
        InputError: it is of another size, or no plain file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is no plain file: do not use it")
        if nbytes is not None and status.st_size != nbytes:
            text = f"{path} was changed, it has {status.st_size} bytes in place of {nbytes}"
            raise InputError(f"{text}: copy the artifact again, or run the search again")
        return CheckedFile(path, digest_of_open(file), _stamp(status))


class _Linked(InputError):
    """A file whose content may be the same as before has another time of its inode."""


def load_unchanged(files: Sequence[CheckedFile], load: Callable[[], T]) -> T:
    """The result of ``load``, which loads the checked content of ``files``.

    It is called again if a link to one of them was made or removed meanwhile.

    Raises:
        InputError: one of them has changed since the check, or meanwhile.
    """
    for _ in range(LOADS - 1):
        with contextlib.suppress(_Linked), _unchanged(files):
            return load()
    with _unchanged(files):
        return load()


@contextlib.contextmanager
def _unchanged(files: Sequence[CheckedFile]) -> Iterator[None]:
    """Make sure that the content loaded from ``files`` within the context is the checked one.

    Directories are verified too: one that was exchanged for another and put back has been renamed.

    Raises:
        InputError: one of them has changed since the check, or within the context.
    """
    around = {file: [_stamp_of(place) for place in _directories(file)] for file in files}
    before = [_held(file) for file in files]
    try:
        yield
    finally:
        linked: list[CheckedFile] = []
        for file, stamp in zip(files, before, strict=True):
            now = _stamp_of(file.path)
            if now is None or now[:4] != stamp[:4] or around[file] != [_stamp_of(d) for d in _directories(file)]:
                raise _changed(file)
            # A run makes links all the time: its processes would load gigabytes again and again.
            linked += [file] if now != stamp and not remembers() else []
        for file in linked:
            raise _Linked(str(_changed(file)))


def _directories(file: CheckedFile) -> list[Path]:
    """The directories from the root to the file's."""
    if file.root is None:
        return [file.path.parent]
    return [place for place in file.path.parents if place == file.root or file.root in place.parents]


def _held(file: CheckedFile) -> Stamp:
    """The present stamp of a file with unchanged content, which may have been copied or linked since."""
    if _stamp_of(file.path) == file.stamp:
        return file.stamp
    try:
        again = check_file(file.path, file.stamp[2])
    except (InputError, OSError):
        raise _changed(file) from None
    if again.digest != file.digest:
        raise _changed(file)
    return again.stamp


def _stamp_of(path: Path) -> Stamp | None:
    with contextlib.suppress(OSError):
        return _stamp(path.lstat())
    return None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _changed(file: CheckedFile) -> InputError:
    return InputError(f"{file.path} was changed since its artifact was opened: load the artifact again")
