"""Profile of OpenVINO's kernels: each kernel's time, from performance counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collage_evo.backends.profiled import KernelTime, kernel_times, runs_within

ORIGINS = "originalLayersNames"
"""What the library notes of a kernel: the model's operators in it."""


def profile_kernels(compiled: Any, inputs: Sequence[np.ndarray], seconds: float) -> Sequence[KernelTime]:
    """Each kernel's ms, named by the nodes that were fused into it where the library lists them."""
    request = compiled.create_infer_request()
    times: dict[str, list[float]] = {}

    def run() -> None:
        request.infer(list(inputs))
        for kernel in request.get_profiling_info():
            times.setdefault(kernel.node_name, []).append(kernel.real_time.total_seconds() * 1e3)

    runs = runs_within(seconds, run)
    kernels = compiled.get_runtime_model().get_ops()
    origins = {kernel.get_friendly_name(): noted(kernel, ORIGINS) for kernel in kernels}
    return [KernelTime(origins.get(kernel.label) or kernel.label, kernel.ms) for kernel in kernel_times(times, runs)]


def noted(kernel: Any, key: str) -> str:
    """What the library notes of a kernel under ``key``; empty where it notes nothing."""
    info = kernel.get_rt_info()
    return str(info[key].astype(str)) if key in info else ""
