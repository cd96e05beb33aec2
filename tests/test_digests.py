"""Digests of files: read once in a run, and in full by whoever remembers nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from collage_evo.digests import REMEMBERED_BYTES, digest_of, forget, remembering

OLD, NEW = b"a" * REMEMBERED_BYTES, b"b" * REMEMBERED_BYTES


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A large file that was written a minute ago."""
    path = tmp_path / "weights"
    path.write_bytes(OLD)
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 60))
    return path


def write_unseen(path: Path) -> None:
    """Write other content, and set the time of the last write back."""
    status = path.stat()
    path.write_bytes(NEW)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_run_reads_a_file_once_and_nobody_else_relies_on_it(file: Path, tmp_path: Path) -> None:
    with remembering(tmp_path / "digests"):
        assert digest_of(file) == sha(OLD)
        write_unseen(file)
        assert digest_of(file) == sha(OLD)
    assert digest_of(file) == sha(NEW)


def test_a_file_that_was_written_to_is_read_again(file: Path, tmp_path: Path) -> None:
    with remembering(tmp_path / "digests"):
        assert digest_of(file) == sha(OLD)
        file.write_bytes(NEW)
        assert digest_of(file) == sha(NEW)
        file.write_bytes(OLD)  # within a step of the file system's clock it may have the same time
        assert digest_of(file) == sha(OLD)


def test_a_process_that_verifies_forgets(file: Path, tmp_path: Path) -> None:
    with remembering(tmp_path / "digests"):
        assert digest_of(file) == sha(OLD)
        write_unseen(file)
        forget()
        assert digest_of(file) == sha(NEW)


def test_a_directory_that_cannot_be_written_to_costs_nothing_but_time(file: Path, tmp_path: Path) -> None:
    with remembering(tmp_path / "digests"):
        (tmp_path / "digests").rmdir()
        assert digest_of(file) == digest_of(file) == sha(OLD)


def test_a_damaged_record_is_not_relied_on(file: Path, tmp_path: Path) -> None:
    with remembering(tmp_path / "digests"):
        assert digest_of(file) == sha(OLD)
        (record,) = (tmp_path / "digests").iterdir()
        for damage in (b"", b"\xff" * 64):
            record.write_bytes(damage)
            assert digest_of(file) == sha(OLD)
