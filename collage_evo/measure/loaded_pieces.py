"""Pieces that stay loaded in a measuring process: placements of one search have most of them in common."""

from __future__ import annotations

from collections import Counter, OrderedDict
from pathlib import Path

from collage_evo.backends.base import DeviceExecutable, Executable, Target
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import Loader, load_piece

CACHE_BYTES = 2**28
"""Of files. Loaded, pieces were seen to take three times as much; a measuring process of 2 GiB is replaced."""

_Key = tuple[Path, tuple[str, ...], tuple[str, ...], int]


class LoadedPieceCache:
    """Loaded pieces, the latest used last; those used longest ago go where their files are too many bytes.

    A kept piece is bound to new buffers when the program that it was bound for is closed. A program that has a piece
    twice has it loaded twice. What runs on a device is loaded anew each time: it takes memory there.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._loaded: OrderedDict[_Key, tuple[Executable, int]] = OrderedDict()

    def loader(self) -> Loader:
        """What loads the pieces of one program, or takes those that are kept. No other may be open beside it."""
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
        """Keep nothing of what was loaded so far."""
        self._loaded.clear()

    def _shrink(self) -> None:
        while len(self._loaded) > 1 and sum(nbytes for _, nbytes in self._loaded.values()) > self._most_bytes:
            self._loaded.popitem(last=False)


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
