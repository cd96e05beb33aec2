"""Kernel times of an exported program, from PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collage_evo.backends.profiled import KernelTime, kernel_times, runs_within

_NO_STEP = "inputs"


def profile_program(program: Any, inputs: Sequence[Any], seconds: float) -> Sequence[KernelTime]:
    """Run an exported program, operator by operator, on ``inputs`` for some ``seconds`` with the profiler on.

    Labels are the names of the steps (``export.py``). Their times are the processor's, or on a GPU those of the
    kernels that a step starts, without the gaps between them.

    Args:
        program: the module of an exported program.
        inputs: tensors on its device.
        seconds: of all runs.
    """
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile, record_function

    class Labelled(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            with record_function(_step(n.meta)):
                return super().run_node(n)

    on_gpu = any(tensor.is_cuda for tensor in inputs)

    def run() -> None:
        labelled.run(*inputs)
        if on_gpu:
            torch.cuda.synchronize()

    labelled = Labelled(program)
    with torch.no_grad():
        run()  # loads kernels
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as profiled:
            runs = runs_within(seconds, run)
    times_ms: dict[str, list[float]] = {}
    steps = {_step(node.meta) for node in program.graph.nodes} - {_NO_STEP}
    for event in profiled.events():
        if event.name in steps and event.device_type == DeviceType.CPU:
            us = event.device_time_total if on_gpu else event.cpu_time_total
            times_ms.setdefault(event.name, []).append(us / 1e3)
    return kernel_times(times_ms, runs)


def _step(meta: Mapping[str, Any]) -> str:
    """The name of the innermost module that an operator of an exported program comes from."""
    stack = meta.get("nn_module_stack") or {}
    path = [name for name, _ in stack.values() if name]
    return str(path[-1]) if path else _NO_STEP
