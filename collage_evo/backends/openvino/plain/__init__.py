"""Plain files of OpenVINO's pieces: the model as IR, and the properties for compiling it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage_evo.backends.plain import CompiledPiece, PlainPiece
from collage_evo.backends.variants import Variant
from collage_evo.hardware.target import Target

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class OpenVinoPlain:
    """``read`` converts a model to the library's own, ``properties`` are for compiling it."""

    read: Callable[[onnx.ModelProto], Any]
    properties: Callable[[Target, Variant], Mapping[str, str]]

    kind: ClassVar[str] = "OpenVinoPiece"
    code: ClassVar[Path] = Path(__file__).parent

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        """Write IR, which later versions of the library read too; a piece's blob fits only one version."""
        import openvino

        model = self.read(piece.model())
        for ports, names in ((model.inputs, piece.inputs), (model.outputs, piece.outputs)):
            for port, name in zip(ports, names, strict=True):
                port.get_tensor().set_names({name})
        files = (f"{stem}.xml", f"{stem}.bin")
        # Not save_model, which would make weights float16.
        openvino.serialize(model, *(str(folder / name) for name in files))
        pinned = "YES" if piece.target.threads > 1 else "NO"  # as measured: on exclusive cores
        return PlainPiece(files, {**self.properties(piece.target, piece.variant), "ENABLE_CPU_PINNING": pinned})
