"""The PyTorch backend: programs compiled ahead of time by Inductor, or run eagerly."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage_evo.backends.base import (
    Backend,
    BuildFailure,
    Built,
    DeviceExecutable,
    Executable,
    Probe,
    Support,
    Target,
)
from collage_evo.backends.checks import fails_to_pass_through, probe_distribution
from collage_evo.backends.plain import PlainFiles
from collage_evo.backends.torch import cuda
from collage_evo.backends.torch.archive import require_unpickled
from collage_evo.backends.torch.loaded import Loaded, LoadedOnDevice, Program
from collage_evo.backends.torch.operators import OPERATORS
from collage_evo.backends.torch.plain import TorchPlain
from collage_evo.backends.torch.rules import judge, refused_by_cuda
from collage_evo.backends.variants import DEFAULT, Arithmetic, Variant
from collage_evo.errors import one_line
from collage_evo.graph.ir import Graph, Node, NodeSet, Tensor, members
from collage_evo.graph.operators import HEAVY
from collage_evo.target.cores import gnu_openmp

if TYPE_CHECKING:
    import onnx

    from collage_evo.patterns.language import Pattern

_COMPILED, _EXPORTED = "model.pt2", "eager.pt2"
_EAGER = Variant("eager")
_ARITHMETICS = {
    "": Arithmetic.FLOAT32,
    "-tf32": Arithmetic.TF32,
    "-bf16": Arithmetic.BFLOAT16,
    "-f16": Arithmetic.FLOAT16,
}
_CUDA_EAGER, _CUDA_AOTI = (
    tuple(Variant(f"cuda-{how}{end}", arithmetic, "cuda") for end, arithmetic in _ARITHMETICS.items())
    for how in ("eager", "aoti")
)


class TorchBackend(Backend):
    """Regions exported by ``torch.export`` and compiled by Inductor ahead of time; ``eager`` skips compilation.

    Compiling takes about ten seconds a region, most of it in the C++ compiler. Inductor lays out weights for oneDNN
    at compile time.

    On CUDA, ``cuda-eager`` calls cuDNN, cuBLAS and fused attention; for ``cuda-aoti`` Inductor compiles Triton
    kernels, which needs the GPU itself. Both exist in TF32, bfloat16 and float16 too.
    """

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    extra: ClassVar[str] = "torch"
    variants: ClassVar[tuple[Variant, ...]] = (DEFAULT, _EAGER, *_CUDA_EAGER, *_CUDA_AOTI)

    def probe(self) -> Probe:
        found = probe_distribution("torch", "torch")
        if found.available and not shutil.which("g++"):
            return Probe(False, found.version, reason="Inductor compiles C++: install g++")
        return found

    def patterns(self) -> tuple[Pattern, ...]:
        from collage_evo.patterns.common import EPILOGUE, SINGLE
        from collage_evo.patterns.regions import Regions

        return (SINGLE, EPILOGUE, Regions())

    def supports_node(self, graph: Graph, node: Node) -> Support:
        return judge(graph, node, OPERATORS)

    def runs_any_model(self, variant: Variant) -> bool:
        return variant in _CUDA_EAGER

    def declines(self, variant: Variant) -> str:
        return cuda.unusable(variant.arithmetic) if variant.device == "cuda" else ""

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        """The variants that differ on ``nodes``.

        A single light operator has nothing to fuse with: compiling it would take long and win little. Lower
        precisions pay only for heavy products: elsewhere they round without gain, and half precision needs
        conversions.
        """
        chosen = [graph.nodes[index] for index in members(nodes)]
        heavy = any(node.op_type in HEAVY for node in chosen)
        compiled = heavy or len(chosen) > 1
        host = (DEFAULT, _EAGER) if compiled else (_EAGER,)
        if any(refused_by_cuda(graph, node) for node in chosen):
            return host
        device = (*_CUDA_EAGER, *_CUDA_AOTI) if compiled else _CUDA_EAGER
        return (*host, *(one for one in device if heavy or one.exact))

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        return threads == 1

    def environment(self, target: Target) -> Mapping[str, str]:
        return gnu_openmp(target.threads)

    def plain_files(self) -> PlainFiles:
        return TorchPlain(lambda variant: (_EXPORTED, False) if _is_eager(variant) else (_COMPILED, True))

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        reason = fails_to_pass_through(model)
        if reason:
            return BuildFailure(reason)
        from collage_evo.backends.torch.export import write_region
        from collage_evo.graph.normalise import normalise
        from collage_evo.graph.read import build_graph

        name, place = (_EXPORTED, "") if _is_eager(variant) else (_COMPILED, self.compiled_for(variant))
        if place == "cuda" and (reason := self.declines(variant)):
            return BuildFailure(f"what is compiled for a GPU is compiled on it: {reason}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # Pieces are normalised, the user's own model is not.
                graph = build_graph(normalise(model))
                write_region(graph, variant, workdir / name, place, target.threads)
                return Built((name,))
        except Exception as error:
            # Every failure of the library is one kind of outcome here: this piece cannot be built.
            return BuildFailure(f"torch: {type(error).__name__}: {one_line(error)}")

    def load(
        self,
        workdir: Path,
        target: Target,
        variant: Variant,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> Executable | DeviceExecutable:
        import torch

        torch.set_num_threads(target.threads)
        path = workdir / (_EXPORTED if _is_eager(variant) else _COMPILED)
        require_unpickled(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if variant.device == "cuda":
                return LoadedOnDevice(_on_device(path, variant), variant.arithmetic)
            if _is_eager(variant):
                return Loaded(torch.export.load(str(path)).module())
            return Loaded(torch._inductor.aoti_load_package(str(path)))

    def compiled_for(self, variant: Variant) -> str:
        """PyTorch's name of the device that pieces are compiled for ahead of time; it has to be there."""
        return variant.device


def _is_eager(variant: Variant) -> bool:
    return variant == _EAGER or variant.name.startswith("cuda-eager")


def _on_device(path: Path, variant: Variant) -> Callable[[Any], Program]:
    """The program for a device, with its weights there."""
    import torch
    from torch.export import passes

    if not _is_eager(variant):
        # Otherwise each run waits for an event of the previous one, which a capture does not allow.
        compiled: Program = torch._inductor.aoti_load_package(str(path), run_single_threaded=True)
        return lambda place: compiled
    exported = torch.export.load(str(path))

    @cache
    def moved(place: Any) -> Program:
        program: Program = passes.move_to_device_pass(exported, place).module()
        return program

    return moved
