"""Profile of OpenVINO's kernels: each kernel's time, from performance counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage_evo.backends.profiled import Kernel, KernelTime, kernel_times, runs_within

ORIGINS = "originalLayersNames"
"""What the library notes of a kernel: the model's operators in it."""
_TYPES = {
    **{"f32": "float32", "f16": "float16", "bf16": "bfloat16", "boolean": "bool"},
    **{"i8": "int8", "u8": "int8", "i32": "int32", "i64": "int64"},
}
"""A kernel's precision, as the library notes it, in the words of a :class:`Kernel`."""


def profile_kernels(compiled: Any, inputs: Sequence[np.ndarray], seconds: float) -> Sequence[KernelTime]:
    """Each kernel's ms, named by the nodes that were fused into it where the library lists them."""
    request = compiled.create_infer_request()
    times: dict[str, list[float]] = {}

    def run() -> None:
        request.infer(list(inputs))
        for kernel in request.get_profiling_info():
            times.setdefault(kernel.node_name, []).append(kernel.real_time.total_seconds() * 1e3)

    runs = runs_within(seconds, run)
    origins = _noted_by_name(compiled, ORIGINS)
    return [KernelTime(origins.get(kernel.label) or kernel.label, kernel.ms) for kernel in kernel_times(times, runs)]


def counted_kernels(compiled: Any, request: Any) -> Sequence[Kernel]:
    """The kernels of ``request`` in the order in which they run, each with its mean time over all runs so far: the
    library counts no single ones. Those that it left out, or that took no microsecond, are not among them."""
    origins, precisions = _noted_by_name(compiled, ORIGINS), _noted_by_name(compiled, "runtimePrecision")
    return [
        Kernel(
            origins.get(kernel.node_name) or kernel.node_name,
            kernel.node_type,
            us,
            _TYPES.get(precisions.get(kernel.node_name, ""), ""),
        )
        for kernel in request.get_profiling_info()
        if (us := kernel.real_time.total_seconds() * 1e6)
    ]


def _noted_by_name(compiled: Any, key: str) -> Mapping[str, str]:
    return {kernel.get_friendly_name(): noted(kernel, key) for kernel in compiled.get_runtime_model().get_ops()}


def noted(kernel: Any, key: str) -> str:
    """What the library notes of a kernel under ``key``; empty where it notes nothing."""
    info = kernel.get_rt_info()
    return str(info[key].astype(str)) if key in info else ""
