"""Plain files of ONNX Runtime's pieces: the ONNX model itself, and the options of its session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collage_evo.backends.plain import CompiledPiece, PlainPiece
from collage_evo.backends.variants import Arithmetic, Variant

UNOPTIMISED = Variant("unoptimised", last_resort=True)
_LEVELS = {"nchw": "ORT_ENABLE_EXTENDED", UNOPTIMISED.name: "ORT_DISABLE_ALL"}
"""Optimisation level of a variant's graph, where it is not the library's highest."""
ROUNDED_BLOCKS = Variant("rounded-blocks", Arithmetic.INT8_BLOCKS)
EXACT_BLOCKS = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""By default the library rounds activations to int8 where it multiplies by weights that a DequantizeLinear reads in
blocks. A product of 1 x 1024 x 1024 took 0.19 ms so, 0.52 in float32, and 9.4 without optimisations (Xeon, AMX)."""


@dataclass(frozen=True)
class OnnxRuntimePlain:
    """``files``: the name of a variant's model in a piece's directory."""

    files: Mapping[str, str]

    kind: ClassVar[str] = "OnnxRuntimePiece"
    code: ClassVar[Path] = Path(__file__).parent

    def write(self, piece: CompiledPiece, folder: Path, stem: str) -> PlainPiece:
        from collage_evo.graph.convert.borders import with_border_names
        from collage_evo.graph.load.files import read_model, save_model
        from collage_evo.graph.load.shapes import dynamic_inputs

        model = read_model(piece.directory / self.files.get(piece.variant.name, self.files["default"]))
        path = folder / f"{stem}.onnx"
        save_model(with_border_names(model, piece.inputs, piece.outputs), path, in_one=True)
        files = sorted(file.name for file in folder.iterdir() if file.name.startswith(path.name))
        open_inputs = bool(dynamic_inputs(model))
        return PlainPiece(tuple(files), session_settings(piece.target.threads, piece.variant, open_inputs))


def session_settings(threads: int, variant: Variant, open_inputs: bool = False) -> dict[str, str]:
    """The options of a session, by the library's names, for ``piece.session_options``."""
    return {
        # ONNX Runtime pins its threads only when it chooses their number itself: set, the process's affinity holds.
        "intra_op_num_threads": str(threads),
        "inter_op_num_threads": "1",
        "execution_mode": "ORT_SEQUENTIAL",
        "graph_optimization_level": _LEVELS.get(variant.name, "ORT_ENABLE_ALL"),
        # Threads spin inside a run and stop at its end, so that they take no core from the next region, which may be
        # another library's. By default they spin for 33 ms more (ONNX Runtime 1.32, an EPYC), which made runs of 60
        # microseconds, one after the other, some 6 shorter.
        "session.force_spinning_stop": "1",
        # The library keeps a plan of its memory for each shape that it has seen, and drops none: 4 kB a shape for 100
        # products side by side (ONNX Runtime 1.32). Without them runs took 0.94 to 1.0 times as long (4 to 128 tokens
        # in 6 layers of width 384; Xeon, 1 thread, beside other work).
        **({"enable_mem_pattern": "0"} if open_inputs else {}),
        **({} if variant == ROUNDED_BLOCKS else EXACT_BLOCKS),
    }
