"""Profile of OpenVINO's kernels: each kernel's time, from performance counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collage_evo.backends.profiled import KernelTime, kernel_times, runs_within

_ORIGINS = "originalLayersNames"


def profile_kernels(compiled: Any, inputs: Sequence[np.ndarray], seconds: float) -> Sequence[KernelTime]:
    """Each kernel's ms, named by the nodes that were fused into it where the library lists them."""
    request = compiled.create_infer_request()
    times: dict[str, list[float]] = {}

    def run() -> None:
        request.infer(list(inputs))
        for kernel in request.get_profiling_info():
            times.setdefault(kernel.node_name, []).append(kernel.real_time.total_seconds() * 1e3)

    runs = runs_within(seconds, run)
    origins = {node.get_friendly_name(): _origins(node) for node in compiled.get_runtime_model().get_ops()}
    return [KernelTime(origins.get(kernel.label) or kernel.label, kernel.ms) for kernel in kernel_times(times, runs)]


def _origins(node: Any) -> str:
    info = node.get_rt_info()
    return str(info[_ORIGINS].astype(str)) if _ORIGINS in info else ""
