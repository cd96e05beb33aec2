"""Pieces stay loaded from one placement to the next, as long as there is room."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collage_evo.fitness.whole_models import LoadedPieceCache
from collage_evo.hardware.target import Target
from collage_evo.runtime.program import Piece, Program


class Loads(list[str]):
    """The pieces that were loaded, in order."""

    def __call__(self, piece: Piece, program: Program, target: Target) -> Any:
        self.append(piece.directory.name)
        return object()


@pytest.fixture
def piece(tmp_path: Path) -> Callable[[str], Piece]:
    def make(name: str, reads: str = "x") -> Piece:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "weights").write_bytes(bytes(100))
        return Piece(tmp_path / name, "onnxruntime", "default", (reads,), ("y",))

    return make


def run(pieces: LoadedPieceCache, *program: Piece) -> list[Any]:
    load = pieces.loader()
    return [load(piece, Program(program, (), (), {}), Target()) for piece in program]


def test_a_piece_is_loaded_once_for_all_placements_that_have_it(piece: Callable[..., Piece]) -> None:
    pieces = LoadedPieceCache(load=(loads := Loads()))
    first, second = run(pieces, piece("a"), piece("b")), run(pieces, piece("b"), piece("c"))
    assert loads == ["a", "b", "c"]
    assert first[1] is second[0]


def test_what_one_placement_has_twice_is_loaded_twice(piece: Callable[..., Piece]) -> None:
    pieces = LoadedPieceCache(load=(loads := Loads()))
    one, other = run(pieces, piece("a"), piece("a"))
    assert one is not other
    assert run(pieces, piece("a"), piece("a")) == [one, other]
    assert run(pieces, piece("a", "z")) != [one], "bound between other tensors"
    assert loads == ["a", "a", "a"]


def test_what_was_used_longest_ago_makes_room(piece: Callable[..., Piece]) -> None:
    pieces = LoadedPieceCache(250, loads := Loads())
    run(pieces, piece("a"), piece("b"))
    run(pieces, piece("a"))
    run(pieces, piece("c"))
    run(pieces, piece("a"))
    assert loads == ["a", "b", "c"]
    run(pieces, piece("b"))
    assert loads == ["a", "b", "c", "b"]


def test_what_is_large_is_not_loaded_beside_another_placement_s(piece: Callable[..., Piece]) -> None:
    loaded = set[str]()

    class Loaded:
        def __init__(self, piece: Piece, program: Program, target: Target) -> None:
            self.name = piece.directory.name
            loaded.add(self.name)
            assert loaded == {self.name}

        def __del__(self) -> None:
            loaded.discard(self.name)

    load: Any = Loaded
    pieces = LoadedPieceCache(50, load)
    for name in "abc":
        run(pieces, piece(name))
