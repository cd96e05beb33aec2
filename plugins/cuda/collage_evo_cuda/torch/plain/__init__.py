"""Plain files of PyTorch's pieces: Inductor's compiled archive, or torch.export's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collage_evo.backends.plain import CompiledPiece, PlainPiece
from collage_evo.backends.variants import Variant


@dataclass(frozen=True)
class TorchPlain:
    """``file_of``: the name of a variant's archive in a piece's directory, and whether Inductor compiled it."""

    file_of: Callable[[Variant], tuple[str, bool]]

    kind: ClassVar[str] = "TorchPiece"
    code: ClassVar[Path] = Path(__file__).parent

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        file, compiled = self.file_of(piece.variant)
        shutil.copyfile(piece.directory / file, folder / f"{stem}.pt2")
        settings = {"threads": str(piece.target.threads), "compiled": str(int(compiled))}
        return PlainPiece((f"{stem}.pt2",), settings)
