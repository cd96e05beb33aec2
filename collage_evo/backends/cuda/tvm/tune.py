"""Tuning of TVM's kernels for a GPU: MetaSchedule proposes all schedules."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from collage_evo.backends.base import Target
from collage_evo.backends.cuda.tvm.compiler import compile_kernels
from collage_evo.backends.cuda.tvm.load import kernels_compiled_by, load_runtime
from collage_evo.backends.cuda.tvm.schedule import default_schedule
from collage_evo.backends.cuda.tvm.target import WEIGHTS, gpu_target
from collage_evo.backends.tvm.schedule import Plan
from collage_evo.backends.tvm.tune import TvmTuner


class TvmCudaTuner(TvmTuner):
    """The tuner of TVM's kernels for a GPU."""

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

    def compiling(self, target: Any) -> contextlib.AbstractContextManager[None]:
        return kernels_compiled_by(lambda source: compile_kernels(source, str(target.attrs["arch"])))
