"""The TensorRT backend: engines compiled for this machine's GPU, where TensorRT is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import (
    Backend,
    BuildFailure,
    Built,
    Probe,
    Support,
    Target,
    Tensors,
    no,
)
from collage_evo.backends.checks import plain, returns_failures
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo_cuda.checks import release_of
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.requirements import lacks_arithmetic, lacks_gpu

if TYPE_CHECKING:
    import onnx


_ENGINE = "model.engine"
_DTYPES = frozenset({"float32", "int32", "int64", "bool"})
_LEAST = (7, 5)
_OLDEST = (10,)
_MEND = "install TensorRT from NVIDIA (what PyPI has fetches it from there): pip install tensorrt"


class TensorRtBackend(Backend):
    """Regions compiled by TensorRT, which chooses among its kernels by timing them while it builds."""

    name: ClassVar[str] = "tensorrt"
    title: ClassVar[str] = "TensorRT"
    execution_providers: ClassVar[Mapping[str, str]] = {"cuda": "CUDAExecutionProvider"}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("cuda", device="cuda"),
        Variant("cuda-tf32", Arithmetic.TF32, "cuda"),
        Variant("cuda-f16", Arithmetic.FLOAT16, "cuda"),
        Variant("cuda-bf16", Arithmetic.BFLOAT16, "cuda"),
    )

    def probe(self) -> Probe:
        version = _version()
        if not version:
            return Probe(False, reason=f"tensorrt is not installed: {_MEND}")
        if release_of(version) < _OLDEST:
            return Probe(False, version, f"tensorrt {version} is older than {_OLDEST[0]}: {_MEND}")
        if importlib.util.find_spec("tensorrt") is None:
            return Probe(False, version, f"tensorrt {version} is a name without the library: {_MEND}")
        reason = lacks_gpu(_LEAST, f"TensorRT {version}")
        return Probe(not reason, version, reason)

    def declines(self, variant: Variant) -> str:
        return lacks_arithmetic(variant.arithmetic)

    def supports_node(self, graph: Graph, node: Node) -> Support:
        """Exclude operators that no region may have; TensorRT's parser decides about the rest of a region."""
        verdict = plain(graph, node, _DTYPES)
        if verdict and len(node.outputs) > 1 and node.op_type in ("MaxPool", "Dropout"):
            return no(f"{node.op_type}: only one output is taken")
        return verdict

    @returns_failures()
    def build(self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path) -> Built | BuildFailure:
        from collage_evo_cuda.tensorrt.engine import build_engine
        from collage_evo_cuda.tensorrt.half import in_half

        if variant.arithmetic in (Arithmetic.FLOAT16, Arithmetic.BFLOAT16):
            model = in_half(model, variant.arithmetic)
        engine = build_engine(model.SerializeToString(), tf32=variant.arithmetic is Arithmetic.TF32)
        (workdir / _ENGINE).write_bytes(engine)
        return Built((_ENGINE,))

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> DeviceExecutable:
        from collage_evo_cuda.tensorrt.engine import LoadedEngine

        return LoadedEngine((workdir / _ENGINE).read_bytes(), inputs, outputs)


def _version() -> str:
    """The installed version, by any of the names under which it comes; empty if there is none."""
    for name in ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""
