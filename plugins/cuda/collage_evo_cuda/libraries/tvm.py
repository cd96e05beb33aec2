"""TVM on the CPU and on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collage_evo.backends.base import Target
from collage_evo.backends.tuning import Tuner
from collage_evo.backends.tvm.backend import TvmBackend
from collage_evo.backends.tvm.records import TUNED
from collage_evo.backends.tvm.tune import TvmTuner
from collage_evo.backends.variants import Variant
from collage_evo.hardware.target import CPU
from collage_evo_cuda.libraries.devices import OnDevices
from collage_evo_cuda.tvm.backend import TvmCudaBackend

if TYPE_CHECKING:
    import onnx


class Tvm(OnDevices, TvmBackend):
    """TVM, with the tuner of the target's device."""

    on_cpu, on_device = TvmBackend(), TvmCudaBackend()
    variants: ClassVar[tuple[Variant, ...]] = (*TvmBackend.variants, *TvmCudaBackend.variants)

    def variant(self, name: str) -> Variant:
        return self.on_device.variant(name) if name.startswith(f"cuda-{TUNED}") else super().variant(name)

    def tuner(self) -> Tuner:
        return _Tuner()


class _Tuner(TvmTuner):
    def tune(self, model: onnx.ModelProto, target: Target, records: Path, trials: int) -> tuple[str, ...]:
        tuner = TvmBackend().tuner() if target.device == CPU else TvmCudaBackend().tuner()
        return tuner.tune(model, target, records, trials)
