"""PyTorch on the CPU and on a GPU."""

from __future__ import annotations

from typing import ClassVar

from collage_evo.backends.cuda.torch.backend import TorchCudaBackend
from collage_evo.backends.libraries.devices import OnDevices
from collage_evo.backends.torch.backend import TorchBackend
from collage_evo.backends.variants import Variant


class Torch(OnDevices, TorchBackend):
    """PyTorch."""

    on_cpu, on_device = TorchBackend(), TorchCudaBackend()
    variants: ClassVar[tuple[Variant, ...]] = (*TorchBackend.variants, *TorchCudaBackend.variants)
