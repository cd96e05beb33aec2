"""ONNX Runtime on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from collage_evo.backends.base import Backend
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.variants import Variant
from collage_evo_cuda.libraries.devices import OnDevices
from collage_evo_cuda.onnxruntime import OnnxRuntimeCudaBackend


class OnnxRuntime(OnDevices, OnnxRuntimeBackend):
    """ONNX Runtime."""

    on_cpu, on_device = OnnxRuntimeBackend(), OnnxRuntimeCudaBackend()
    variants: ClassVar[tuple[Variant, ...]] = (*OnnxRuntimeBackend.variants, *OnnxRuntimeCudaBackend.variants)
    execution_providers: ClassVar[Mapping[str, str]] = {
        **OnnxRuntimeBackend.execution_providers,
        **OnnxRuntimeCudaBackend.execution_providers,
    }

    def keeping_to(self, cores: Sequence[int]) -> Backend:
        return self.on_cpu.keeping_to(cores)
