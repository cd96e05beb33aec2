"""PyTorch on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.profiled import KernelTime
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.torch.backend import Program, TorchBackend
from collage_evo_cuda.torch_cuda import requirements
from collage_evo_cuda.torch_cuda.loaded import LoadedOnDevice
from collage_evo_cuda.torch_cuda.switches import computing_in

if TYPE_CHECKING:
    import onnx

_ARITHMETICS = {
    "": Arithmetic.FLOAT32,
    "-tf32": Arithmetic.TF32,
    "-bf16": Arithmetic.BFLOAT16,
    "-f16": Arithmetic.FLOAT16,
}
_EAGER, _AOTI = (
    tuple(Variant(f"cuda-{how}{end}", arithmetic, "cuda") for end, arithmetic in _ARITHMETICS.items())
    for how in ("eager", "aoti")
)
_FLOATS = frozenset({"MatMul", "MaxPool", "GlobalMaxPool"})
"""Operators that PyTorch has for integers only on the CPU."""


class TorchCudaBackend(TorchBackend):
    """Regions that run eagerly, or as Inductor's kernels; both exist in TF32, bfloat16 and float16 too.

    ``cuda-eager`` calls cuDNN, cuBLAS and fused attention; for ``cuda-aoti`` Inductor compiles Triton kernels, which
    needs the GPU itself.
    """

    variants: ClassVar[tuple[Variant, ...]] = (*_EAGER, *_AOTI)

    def is_eager(self, variant: Variant) -> bool:
        return variant in _EAGER

    def runs_any_model(self, variant: Variant) -> bool:
        return self.is_eager(variant)

    def declines(self, variant: Variant) -> str:
        return requirements.unusable(variant.arithmetic)

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """Lower precisions pay only for heavy products: elsewhere they round without gain, and half precision needs
        conversions.
        """
        chosen = [graph.nodes[index] for index in members(nodes)]
        if any(_only_on_cpu(graph, node) for node in chosen):
            return ()
        heavy = any(node.op_type in HEAVY for node in chosen)
        return tuple(variant for variant in super().variants_of(graph, nodes) if heavy or variant.exact)

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        if self._compiled_for(variant) == "cuda" and (reason := self.declines(variant)):
            return BuildFailure(f"what is compiled for a GPU is compiled on it: {reason}")
        return super().build(model, target, variant, workdir)

    def write_region(self, graph: Graph, variant: Variant, path: Path, threads: int) -> None:
        from collage_evo_cuda.torch_cuda.export import write_region

        write_region(graph, variant.arithmetic, path, self._compiled_for(variant), threads)

    def open_program(self, path: Path, variant: Variant) -> DeviceExecutable:
        return LoadedOnDevice(self._program_at(path, variant), variant.arithmetic)

    def profile_program(
        self, path: Path, variant: Variant, inputs: Sequence[Any], seconds: float
    ) -> Sequence[KernelTime]:
        import torch

        from collage_evo_cuda.torch.profile import profile_program

        place = torch.empty(0, device=self.compiled_for()).device
        with computing_in(variant.arithmetic, search=True):
            there = [tensor.to(place) for tensor in inputs]
            return profile_program(self._program_at(path, variant)(place), there, seconds)

    def compiled_for(self) -> str:
        """PyTorch's name of the device that pieces are compiled for ahead of time; it has to be there."""
        return "cuda"

    def _compiled_for(self, variant: Variant) -> str:
        return "" if self.is_eager(variant) else self.compiled_for()

    def _program_at(self, path: Path, variant: Variant) -> Callable[[Any], Program]:
        """The program for a device, with its weights there."""
        import torch
        from torch.export import passes

        if not self.is_eager(variant):
            # Otherwise each run waits for an event of the previous one, which a capture does not allow.
            compiled: Program = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
            return lambda place: compiled
        exported = torch.export.load(str(path))

        @cache
        def moved(place: Any) -> Program:
            program: Program = passes.move_to_device_pass(exported, place).module()
            return program

        return moved


def _only_on_cpu(graph: Graph, node: Node) -> bool:
    return node.op_type in _FLOATS and graph.tensors[node.inputs[0]].dtype != "float32"
