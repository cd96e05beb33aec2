"""Memory that is taken while something loads is put on huge pages; what was there before is left alone."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.base import Executable, Target
from collage_evo.runtime.pages import COLLAPSED, Span, beyond, huge_page_bytes, on_huge_pages
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import load_piece
from collage_evo.runtime.session import Session
from tests.runtime.helpers import TARGET, alternating
from tests.support.models import chain

MB = 2**20


@pytest.mark.parametrize(
    ("spans", "known", "left"),
    [
        ([(0, 4)], [], [(0, 4)]),
        ([(0, 4)], [(0, 4)], []),
        ([(0, 8)], [(2, 4)], [(0, 2), (4, 8)]),
        ([(0, 8), (10, 12)], [(0, 4), (6, 8)], [(4, 6), (10, 12)]),
        ([(2, 4)], [(0, 8)], []),
        ([(0, 4)], [(4, 8)], [(0, 4)]),
    ],
)
def test_what_was_there_before_is_taken_away(spans: list[Span], known: list[Span], left: list[Span]) -> None:
    assert list(beyond(spans, known)) == left


def test_what_is_allocated_meanwhile_is_advised_and_nothing_else() -> None:
    advised: list[tuple[int, int, int]] = []
    before = _mapped(64 * MB)
    with on_huge_pages(2 * MB, lambda *told: advised.append(told)):
        meanwhile = _mapped(64 * MB)
    assert _bytes_in(meanwhile, advised) >= 60 * MB
    assert _bytes_in(before, advised) == 0
    assert all(begin % (2 * MB) == nbytes % (2 * MB) == 0 for begin, nbytes, _ in advised)


def _mapped(nbytes: int) -> np.ndarray:
    """Memory that is mapped for it: what malloc gives may have been there before."""
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def _bytes_in(array: np.ndarray, advised: list[tuple[int, int, int]]) -> int:
    """How many bytes of ``array`` were put on huge pages where they had been touched."""
    begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
    spans = ((at, nbytes) for at, nbytes, advice in advised if advice == COLLAPSED)
    return sum(max(0, min(end, at + nbytes) - max(begin, at)) for at, nbytes in spans)


def _flags(array: np.ndarray) -> list[str]:
    """What the kernel was told of the memory in the middle of ``array``."""
    middle, inside = array.ctypes.data + array.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            begin, end = (int(address, 16) for address in line.split()[0].split("-"))
            inside = begin <= middle < end
        elif inside and line.startswith("VmFlags:"):
            return line.split()
    raise AssertionError("it is not mapped")


@pytest.mark.skipif(not huge_page_bytes(), reason="this kernel gives none")
def test_what_the_pieces_of_a_session_take_is_on_huge_pages_and_stays_as_it_is(tmp_path: Path) -> None:
    taken: list[np.ndarray] = []

    def load(piece: Piece, program: Program, target: Target) -> Executable:
        taken.append(_mapped(64 * MB).view(np.int64))
        taken[-1][:] = np.arange(8 * MB)
        return load_piece(piece, program, target)

    with Session([alternating(chain(1), tmp_path, ("onnxruntime", "openvino"))], TARGET, load=load):
        assert len(taken) == 2
        for numbers in taken:
            assert "hg" in _flags(numbers)
            assert (numbers == np.arange(8 * MB)).all()


@pytest.mark.parametrize("enabled", ["always madvise [never]\n", None])
def test_nothing_is_done_where_there_are_none(tmp_path: Path, enabled: str | None) -> None:
    if enabled is not None:
        (tmp_path / "enabled").write_text(enabled)
        (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    with on_huge_pages(huge_page_bytes(tmp_path), lambda *told: pytest.fail("nobody is to be told")):
        _mapped(64 * MB)
