"""Exports in parts: equal weights are equal files at any offset, and the parts together are the export."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.openvino.blob import MARK, blob_files, write_blob
from tests.backends.pieces import build, usable
from tests.support.models import tiny_branchy

LEAST, BLOCK = 2**14, 100_003
write = partial(write_blob, parts_bytes=2**16, part_bytes=LEAST, block_bytes=BLOCK)
END = bytes((*MARK, 1))
"""Behind these bytes a part may end."""


def drawn(seed: int, nbytes: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8).tobytes()


def weights(seed: int) -> bytes:
    """Four MB in which a part may end every 64 KiB or so."""
    return b"".join(drawn(seed + k, 2**16 + k) + END for k in range(64))


def written(path: Path, content: bytes) -> set[bytes]:
    names = write(path, memoryview(content))
    assert [file.name for file in blob_files(path)] == list(names)
    parts = [file.read_bytes() for file in blob_files(path)]
    assert b"".join(parts) == content
    assert len(parts) > 20
    assert min(map(len, parts[:-1])) >= LEAST
    return set(parts)


def test_equal_weights_at_other_offsets_are_equal_parts(tmp_path: Path) -> None:
    one, other = weights(0), weights(100)
    first = written(tmp_path / "first", one + other)
    second = written(tmp_path / "second", b"a header" + one + b"a table of another shape" + other + b"a footer")
    assert len(second - first) <= 4


def test_a_part_may_end_at_the_border_of_two_blocks(tmp_path: Path) -> None:
    content = drawn(0, BLOCK - 2)
    for shift in range(4):
        assert len(write(tmp_path / str(shift), memoryview(content[shift:] + END + drawn(1, 2**15)))) == 2


@pytest.mark.parametrize("content", [b"", b"short", bytes(2**20)])
def test_what_is_small_or_has_no_place_to_end_is_one_file(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "a.blob", memoryview(content))
    (file,) = blob_files(tmp_path / "a.blob")
    assert file.read_bytes() == content


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_on_a_full_disk_a_piece_is_not_refused_but_the_system_s_error_is_raised(tmp_path: Path) -> None:
    (tmp_path / "model.blob").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as refused:
        build(usable("openvino"), tiny_branchy(), tmp_path)
    assert refused.value.errno == errno.ENOSPC
