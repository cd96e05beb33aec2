"""SHA-256 of files. The processes of a run read each large file for it once, whichever comes first.

A run hashes gigabytes of weights and compiled pieces many times: as a piece, as a file of an artifact, and at each
load. Between its processes it trusts that nobody wrote to a file whose inode, size and time of the last write are the
same. What a run publishes is verified in full, by a process that remembers nothing, as is whatever a user loads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path

DIGESTS = "digests"
"""Name in a run's work directory."""
REMEMBERED_BYTES = 2**20
"""Bytes from which the digest of a file is remembered: reading smaller ones takes no longer than looking it up."""
SETTLED_NS = 10**9
"""Age of a time of a file from which another change has another time: these advance in steps of milliseconds, on some
file systems of a second."""
_DIGITS = 64

_memory: ContextVar[Path | None] = ContextVar("memory", default=None)
"""A directory with a file for each digest that this thread may rely on: threads of a user's own do not."""


def digest_of_lines(lines: Iterable[str]) -> str:
    """32 hexadecimal digits, the same for the same ``lines``."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


@contextlib.contextmanager
def remembering(directory: Path) -> Iterator[None]:
    """Share the digests of large files with all processes that do so in ``directory``, for as long as the context
    lasts."""
    directory.mkdir(exist_ok=True)
    before = _memory.set(directory)
    try:
        yield
    finally:
        _memory.reset(before)


def forget() -> None:
    """Rely on no remembered digest from now on, within the context."""
    _memory.set(None)


def remembers() -> bool:
    """Whether this thread is one of a run, and relies on the times of the last writes."""
    return _memory.get() is not None


def digest_of(path: Path) -> str:
    """SHA-256 of the file at ``path``, in hexadecimal digits."""
    with path.open("rb") as file:
        return digest_of_open(file)


def digest_of_open(file: BufferedReader) -> str:
    """SHA-256 of a file that is open at its beginning, in hexadecimal digits."""
    before = os.fstat(file.fileno())
    memory = _memory.get()
    if memory is None or before.st_size < REMEMBERED_BYTES:
        return hashlib.file_digest(file, "sha256").hexdigest()
    known = memory / "-".join(map(str, _identity(before)))
    with contextlib.suppress(OSError, ValueError):
        if len(remembered := known.read_text("ascii")) == _DIGITS:
            return remembered
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    after = os.fstat(file.fileno())
    if _identity(after) == _identity(before) and time.time_ns() - after.st_mtime_ns > SETTLED_NS:
        partial = known.with_name(f"{known.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # a full disk: it is hashed again
            partial.write_text(digest)
            partial.replace(known)
    return digest


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
