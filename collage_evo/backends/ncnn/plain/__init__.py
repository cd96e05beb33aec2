"""Plain files of ncnn's pieces: .param and .bin, and the axes of their tensors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collage_evo.backends.ncnn.plan import Plan
from collage_evo.backends.plain import CompiledPiece, PlainPiece


@dataclass(frozen=True)
class NcnnPlain:
    """``plan_of`` reads a piece's plan of calls."""

    param: str
    weights: str
    plan_of: Callable[[Path], Plan]

    kind: ClassVar[str] = "NcnnPiece"
    code: ClassVar[Path] = Path(__file__).parent

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        plan = self.plan_of(piece.directory)
        files = (f"{stem}.param", f"{stem}.bin")
        for source, name in zip((self.param, self.weights), files, strict=True):
            shutil.copyfile(piece.directory / source, folder / name)
        return PlainPiece(
            files,
            {
                "num_threads": str(piece.target.threads),
                "use_winograd_convolution": str(int(piece.variant.base != "sgemm")),
                "inputs_without_batch_axis": _bits(plan.batched_inputs),
                "outputs_without_batch_axis": _bits(plan.batched_outputs),
                "inputs_read_in_place": _bits(plan.shared_inputs),
            },
        )


def _bits(values: tuple[bool, ...]) -> str:
    return "".join(str(int(value)) for value in values)
