"""Plain files of TVM's pieces: the compiled shared library, and the number of threads of its pool."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collage_evo.backends.plain import CompiledPiece, PlainPiece


@dataclass(frozen=True)
class TvmPlain:
    """``file``: the name of the library in a piece's directory."""

    file: str

    kind: ClassVar[str] = "TvmPiece"
    code: ClassVar[Path] = Path(__file__).parent

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        shutil.copyfile(piece.directory / self.file, folder / f"{stem}.so")
        return PlainPiece((f"{stem}.so",), {"threads": str(piece.target.threads)})
