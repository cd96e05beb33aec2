"""Writes through mapped memory to files of a file system in memory, which leave all times of a file as they are."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder on a tmpfs. Skips where there is none."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("needs /dev/shm")
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def replace_unseen(file: Path, old: bytes, new: bytes) -> None:
    """Write ``new`` over ``old``, of the same length, in ``file``."""
    assert len(old) == len(new)
    status = file.stat()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as memory:
        at = memory.find(old)
        assert at >= 0
        memory[at : at + len(new)] = new
    now = file.stat()
    assert (now.st_mtime_ns, now.st_ctime_ns, now.st_ino) == (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
