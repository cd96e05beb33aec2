"""The backend of a library made of one for the CPU and one for a device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import Backend, BuildFailure, Built, Executable, Tensors
from collage_evo.backends.variants import Variant
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.hardware.target import CPU, Target
from collage_evo_cuda.device import DeviceExecutable

if TYPE_CHECKING:
    import onnx


class OnDevices(Backend):
    """What concerns a variant goes to the backend of its device.

    A base class before the library's class for the CPU, which gives everything else, optional capabilities too.
    """

    # Client code looks for this name, also of libraries that are no provider of ONNX Runtime.
    execution_providers: ClassVar[Mapping[str, str]] = {"cuda": "CUDAExecutionProvider"}
    on_cpu: ClassVar[Backend]
    on_device: ClassVar[Backend]

    def backend_of(self, variant: Variant) -> Backend:
        """The backend that builds and runs pieces of ``variant``."""
        return self.on_cpu if variant.device == CPU else self.on_device

    def guards(self, variant: Variant) -> bool:
        return self.backend_of(variant).guards(variant)

    def bits(self, variant: Variant) -> int:
        return self.backend_of(variant).bits(variant)

    def version_of(self, variant: Variant) -> str:
        return self.backend_of(variant).version_of(variant)

    def declines(self, variant: Variant) -> str:
        return self.backend_of(variant).declines(variant)

    def runs_any_model(self, variant: Variant) -> bool:
        return self.backend_of(variant).runs_any_model(variant)

    def runs_on_after_fork(self, variant: Variant, threads: int) -> bool:
        return self.backend_of(variant).runs_on_after_fork(variant, threads)

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        return (*self.on_cpu.variants_of(graph, nodes), *self.on_device.variants_of(graph, nodes))

    def build(
        self, model: onnx.ModelProto, target: Target, variant: Variant, workdir: Path
    ) -> Built | BuildFailure:
        return self.backend_of(variant).build(model, target, variant, workdir)

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> Executable | DeviceExecutable:
        return self.backend_of(variant).load(workdir, target, variant, inputs, outputs)
