"""Memory that is taken while something loads is put on huge pages; what was there before is left alone."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.base import Executable, Target
from collage_evo.runtime import pages, runner
from collage_evo.runtime.pages import Span, beyond, huge_page_bytes, on_huge_pages
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.session import Session
from tests.runtime.helpers import TARGET, alternating
from tests.support.models import tiny_convnet

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


def test_what_is_allocated_meanwhile_is_advised_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[tuple[int, int, int]] = []
    monkeypatch.setattr(pages, "huge_page_bytes", lambda: 2 * MB)
    monkeypatch.setattr(pages, "_madvise", lambda *told: advised.append(told))
    if not pages._MAPPED.exists():
        pytest.skip("Linux tells a process what it has mapped")
    before = _mapped(64 * MB)
    with on_huge_pages():
        meanwhile = _mapped(64 * MB)
    assert _bytes_in(meanwhile, advised) >= 60 * MB
    assert _bytes_in(before, advised) == 0
    assert all(begin % (2 * MB) == nbytes % (2 * MB) == 0 for begin, nbytes, _ in advised)


def test_all_pieces_of_a_session_are_loaded_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []

    @contextmanager
    def noted() -> Iterator[None]:
        seen.append("begun")
        yield
        seen.append("over")

    def load(piece: Piece, program: Program, target: Target) -> Executable:
        seen.append("loaded")
        return runner.load_piece(piece, program, target)

    monkeypatch.setattr(runner, "on_huge_pages", noted)
    program = alternating(tiny_convnet(), tmp_path, ("onnxruntime", "openvino"))
    with Session([program], TARGET, load=load):
        assert seen == ["begun", *["loaded"] * len(program.pieces), "over"]


def _mapped(nbytes: int) -> np.ndarray:
    """Memory that is mapped for it: what malloc gives may have been there before."""
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def _bytes_in(array: np.ndarray, advised: list[tuple[int, int, int]]) -> int:
    """How many bytes of ``array`` were put on huge pages where they had been touched."""
    begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
    return sum(max(0, min(end, at + nbytes) - max(begin, at)) for at, nbytes, advice in advised if advice == 25)


def test_numbers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    if not huge_page_bytes():
        pytest.skip("this kernel gives none")
    advised: list[tuple[int, int, int]] = []
    really = pages._madvise
    monkeypatch.setattr(pages, "_madvise", lambda *told: (advised.append(told), really(*told)))
    with on_huge_pages():
        numbers = _mapped(64 * MB).view(np.int64)
        numbers[:] = np.arange(8 * MB)
    assert _bytes_in(numbers, advised)
    assert (numbers == np.arange(8 * MB)).all()


@pytest.mark.parametrize("enabled", ["always madvise [never]\n", None])
def test_nothing_is_done_where_there_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, enabled: str | None
) -> None:
    monkeypatch.setattr(pages, "_SETTINGS", tmp_path)
    if enabled is not None:
        (tmp_path / "enabled").write_text(enabled)
        (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    monkeypatch.setattr(pages, "huge_page_bytes", huge_page_bytes.__wrapped__)
    monkeypatch.setattr(pages, "_anonymous", lambda: pytest.fail("nobody needs to know"))
    with on_huge_pages():
        pass
