"""Export of a region as a PyTorch file: an exported or a compiled program."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.graph.ir.graph import Graph
from collage_evo.hardware.private import own_temporary
from collage_evo_cuda.torch.fusions import Fusion, Step, Values, steps

_FILTERS = {"Conv", "ConvTranspose"}
_LARGEST_FLOAT16 = 65504.0
_NO_NAME = re.compile(r"\W")
"""Characters that names of modules lack."""


def export_region(
    graph: Graph, fusions: Sequence[Fusion] = (), half: str = "", channels_last: bool = False
) -> Any:
    """The region as an exported program, whose borders are float32 also where ``graph`` has tensors of ``half``.

    Args:
        graph: the region.
        fusions: operators that are one call together.
        half: PyTorch's name of the type in which ``graph`` computes in place of float32, if any.
        channels_last: whether filters of convolutions have their channels last.
    """
    import torch

    weights = _weights(graph, half, channels_last)
    inputs = [graph.tensors[name] for name in graph.inputs]
    types = ("float32" if tensor.dtype == half else tensor.dtype for tensor in inputs)
    examples = tuple(
        torch.zeros(tensor.shape, dtype=getattr(torch, dtype)) for tensor, dtype in zip(inputs, types, strict=True)
    )
    return torch.export.export(_module(graph, steps(graph, fusions), weights, half), examples)


def save_program(exported: Any, path: Path) -> None:
    """Write an exported program to ``path``."""
    import torch

    # PyTorch pickles the examples, and does not need them.
    exported.example_inputs = None
    torch.export.save(exported, path)


def compile_program(exported: Any, path: Path, threads: int) -> None:
    """Compile an exported program ahead of time into ``path``, for the device of its weights."""
    import torch
    import torch._inductor

    # By default in TMPDIR, which is private to a measuring process: compiling headers anew there takes ten seconds.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(own_temporary() / "torchinductor"))
    options = {"freezing": True, "cpp.threads": threads, "compile_threads": 1}
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=options)


def halved(graph: Graph, half: str) -> Graph:
    """The graph with tensors of the type ``half`` where they are float32; its constants do not change."""
    tensors = {
        name: replace(tensor, dtype=half) if tensor.dtype == "float32" else tensor
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)


def _weights(graph: Graph, half: str = "", channels_last: bool = False) -> dict[str, Any]:
    """The region's constants as tensors; filters of convolutions have their channels last if ``channels_last``."""
    import torch

    statistics = {name for node in graph.nodes if node.op_type == "BatchNormalization" for name in node.inputs[1:]}
    filters = {node.inputs[1] for node in graph.nodes if node.op_type in _FILTERS} if channels_last else set()
    orders = {4: torch.channels_last, 5: torch.channels_last_3d}
    weights = {}
    for name, array in graph.constants.items():
        tensor = torch.from_numpy(np.array(array))
        if half and tensor.dtype == torch.float32 and name not in statistics:
            tensor = _rounded(tensor, half)
        if name in filters and tensor.ndim in orders:
            # A new tensor: 1x1 filters are in both orders at once, and would pass for the other one.
            tensor = torch.empty_like(tensor, memory_format=orders[tensor.ndim]).copy_(tensor)
        weights[name] = tensor
    return weights


def _rounded(tensor: Any, half: str) -> Any:
    import torch

    if half == "float16":
        # Masks hold the least float32, which must stay finite.
        tensor = torch.where(tensor.isfinite(), tensor.clamp(-_LARGEST_FLOAT16, _LARGEST_FLOAT16), tensor)
    return tensor.to(getattr(torch, half))


def _module(graph: Graph, steps: Sequence[Step], weights: Mapping[str, Any], half: str) -> Any:
    """The region as a module that runs its steps in order; defined here because its base class needs PyTorch."""
    import torch

    class Single(torch.nn.Module):
        def __init__(self, step: Step) -> None:
            super().__init__()
            self.outputs, self._run = step.outputs, step.run

        def forward(self, values: Values) -> Sequence[Any]:
            return self._run(values)

    class Region(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._slots = {name: f"c{index}" for index, name in enumerate(weights)}
            for name, slot in self._slots.items():
                self.register_buffer(slot, weights[name])
            # Modules, since an exported program knows the names of those that its operators come from: profile.py.
            for index, step in enumerate(steps):
                self.add_module(f"s{index}_{_NO_NAME.sub('_', step.outputs[0])}", Single(step))

        def forward(self, *arguments: Any) -> tuple[Any, ...]:
            values: Values = {name: getattr(self, slot) for name, slot in self._slots.items()}
            for name, tensor in zip(graph.inputs, arguments, strict=True):
                is_float = half and tensor.dtype == torch.float32
                values[name] = tensor.to(getattr(torch, half)) if is_float else tensor
            for step in self.children():
                values.update(zip(step.outputs, step(values), strict=True))
            return tuple(values[name] for name in graph.outputs)

    return Region().eval()
