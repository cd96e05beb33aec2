"""PyTorch on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from collage_evo.backends.profiled import KernelTime
from collage_evo.backends.variants import Variant
from collage_evo.hardware.target import Target
from collage_evo_cuda.libraries.devices import OnDevices
from collage_evo_cuda.torch.backend import TorchBackend
from collage_evo_cuda.torch_cuda.backend import TorchCudaBackend


class Torch(OnDevices, TorchBackend):
    """PyTorch."""

    on_cpu, on_device = TorchBackend(), TorchCudaBackend()
    variants: ClassVar[tuple[Variant, ...]] = (*TorchBackend.variants, *TorchCudaBackend.variants)

    def backend_of(self, variant: Variant) -> TorchBackend:
        backend = super().backend_of(variant)
        assert isinstance(backend, TorchBackend)
        return backend

    def profiles(self, variant: Variant) -> bool:
        return self.backend_of(variant).profiles(variant)

    def profile(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[np.ndarray], seconds: float
    ) -> Sequence[KernelTime]:
        return self.backend_of(variant).profile(workdir, target, variant, inputs, seconds)
