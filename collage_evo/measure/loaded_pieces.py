"""Cache of loaded pieces in a worker process: placements of one search have most of them in common."""

from __future__ import annotations

from collections import Counter, OrderedDict
from pathlib import Path

from collage_evo.backends.base import DeviceExecutable, Executable, Target
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import Loader, load_piece

CACHE_BYTES = 2**28
"""Limit in bytes of files. Loaded pieces took three times as much; a worker process of 2 GiB is replaced."""

_Key = tuple[Path, tuple[str, ...], tuple[str, ...], int]


class LoadedPieceCache:
    """Least-recently-used cache of loaded pieces, bounded by the bytes of their files.

    A cached piece is bound to new buffers when the program that it was bound for is closed. A program that contains a
    piece twice loads it twice. Pieces on a device are loaded anew each time, because they take memory there.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._loaded: OrderedDict[_Key, tuple[Executable, int]] = OrderedDict()

    def loader(self) -> Loader:
        """A loader for the pieces of one program, from the cache where possible. No other program may be open at the
        same time."""
        used: Counter[Path] = Counter()

        def load(piece: Piece, program: Program, target: Target) -> Executable | DeviceExecutable:
            used[piece.directory] += 1
            key = (piece.directory, piece.inputs, piece.outputs, used[piece.directory])
            if key in self._loaded:
                self._loaded.move_to_end(key)
                return self._loaded[key][0]
            executable = load_piece(piece, program, target)
            if not isinstance(executable, DeviceExecutable):
                self._loaded[key] = (executable, _bytes_of(piece.directory))
                self._shrink()
            return executable

        return load

    def clear(self) -> None:
        """Empty the cache."""
        self._loaded.clear()

    def _shrink(self) -> None:
        while len(self._loaded) > 1 and sum(nbytes for _, nbytes in self._loaded.values()) > self._most_bytes:
            self._loaded.popitem(last=False)


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
