"""TVM on a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from collage_evo.backends.base import Target, Tensors
from collage_evo.backends.tuning import Tuner
from collage_evo.backends.tvm.backend import TvmBackend, find_linker
from collage_evo.backends.tvm.schedule import Plan
from collage_evo.backends.tvm.tune import TvmTuner
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.requirements import lacks_arithmetic
from collage_evo_cuda.tvm.build import FILES, build_files
from collage_evo_cuda.tvm.compiler import compile_kernels, unusable
from collage_evo_cuda.tvm.load import CudaExecutable, kernels_compiled_by, load_runtime
from collage_evo_cuda.tvm.schedule import default_schedule
from collage_evo_cuda.tvm.target import WEIGHTS, gpu_target


class TvmCudaBackend(TvmBackend):
    """Whole regions as kernels in CUDA C, compiled ahead of time and called in order."""

    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("cuda", device="cuda"),
        Variant("cuda-f16", Arithmetic.FLOAT16, device="cuda"),
    )
    weights: ClassVar[str] = WEIGHTS

    def declines(self, variant: Variant) -> str:
        return unusable() or lacks_arithmetic(variant.arithmetic)

    def tuner(self) -> Tuner:
        return TvmCudaTuner()

    def compiled_for(self, target: Target) -> Any:
        return gpu_target(target)

    def write_files(self, module: Any, target: Any, workdir: Path) -> tuple[str, ...]:
        build_files(module, target, workdir, find_linker())
        return FILES

    def load(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors, outputs: Tensors
    ) -> DeviceExecutable:
        return CudaExecutable(workdir)


class TvmCudaTuner(TvmTuner):
    """The tuner of TVM's kernels for a GPU: MetaSchedule proposes all schedules."""

    device: ClassVar[str] = "cuda"
    weights: ClassVar[str] = WEIGHTS

    def compiled_for(self, target: Target) -> Any:
        return gpu_target(target)

    def plans_for(self, kernel: Any, target: Any) -> tuple[Plan, ...] | None:
        return None

    def untuned(self, module: Any, target: Any) -> Any:
        return default_schedule(module["main"], target)

    def prepare(self, threads: int) -> None:
        load_runtime()

    def compiling(self, target: Any) -> AbstractContextManager[None]:
        return kernels_compiled_by(lambda source: compile_kernels(source, str(target.attrs["arch"])))
