"""Export of a region as a PyTorch file: an exported or a compiled program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.backends.torch.cuda import require_toolkit
from collage_evo.backends.torch.fusions import ATTENTIONS, FUSIONS, Step, Values, steps
from collage_evo.backends.torch.switches import computing_in
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.graph.ir import Graph
from collage_evo.target.private import own_temporary

HALVES = {Arithmetic.BFLOAT16: "bfloat16", Arithmetic.FLOAT16: "float16"}
_FILTERS = {"Conv", "ConvTranspose"}
_LARGEST_FLOAT16 = 65504.0


def write_region(graph: Graph, variant: Variant, path: Path, compiled_for: str = "", threads: int = 1) -> None:
    """Export the region, and compile it ahead of time if ``compiled_for`` names a device of PyTorch's.

    Half precision applies to all tensors that are float32 outside: inputs are rounded on entry, outputs are in half.
    Sums inside an operator (products, softmax, means, statistics of normalisations) stay in float32, as do the stored
    statistics of a BatchNormalization.

    Raises:
        UnavailableError: requirements for compiling for the GPU are missing.
    """
    import torch

    if compiled_for == "cuda":
        require_toolkit()
    torch.set_num_threads(threads)
    with torch.no_grad():
        if variant.device == "cpu":
            exported = _exported(graph, steps(graph), _weights(graph), "")
        else:
            exported = _for_gpu(graph, variant, fused=not compiled_for)
        if compiled_for:
            _compile(exported, variant, path, compiled_for, threads)
            return
    # PyTorch pickles the examples, and does not need them.
    exported.example_inputs = None
    torch.export.save(exported, path)


def as_module(graph: Graph, fused: bool, place: str) -> Any:
    """The graph in float32 as a module of PyTorch on a device, whose only work in Python is the calls themselves.

    Attention is one call; if ``fused``, so are products with their bias and activation, which Inductor fuses itself.
    """
    from torch.export import passes

    exported = _exported(graph, steps(graph, FUSIONS if fused else ATTENTIONS), _weights(graph), "")
    return passes.move_to_device_pass(exported, place).module()


def _for_gpu(graph: Graph, variant: Variant, fused: bool) -> Any:
    """The region for a GPU, exported on the CPU. Without ``fused``, Inductor fuses and orders the channels.

    Matrix instructions, which every arithmetic but exact float32 uses, take convolutions with their channels last;
    the operators around them follow.
    """
    half = HALVES.get(variant.arithmetic, "")
    region = _halved(graph, half) if half else graph
    channels_last = fused and variant.arithmetic is not Arithmetic.FLOAT32
    weights = _weights(graph, half, channels_last)
    return _exported(region, steps(region, FUSIONS if fused else ATTENTIONS), weights, half)


def _compile(exported: Any, variant: Variant, path: Path, compiled_for: str, threads: int) -> None:
    import torch
    import torch._inductor
    from torch.export import passes

    # By default in TMPDIR, which is private to a measuring process: compiling headers anew there takes ten seconds.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(own_temporary() / "torchinductor"))
    options = {"freezing": True, "cpp.threads": threads, "compile_threads": 1}
    if variant.device == "cpu":
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=options)
        return
    # Triton compiles the choice of TF32 into its products.
    with computing_in(variant.arithmetic):
        # With its number: the program checks its tensors' devices.
        place = str(torch.empty(0, device=compiled_for).device)
        moved = passes.move_to_device_pass(exported, place)
        torch._inductor.aoti_compile_and_package(moved, package_path=str(path), inductor_configs=options)


def _exported(graph: Graph, steps: Sequence[Step], weights: Mapping[str, Any], half: str) -> Any:
    import torch

    given = [graph.tensors[name] for name in graph.inputs]
    # Borders between regions are float32, whatever the arithmetic.
    types = ("float32" if tensor.dtype == half else tensor.dtype for tensor in given)
    examples = tuple(
        torch.zeros(tensor.shape, dtype=getattr(torch, dtype)) for tensor, dtype in zip(given, types, strict=True)
    )
    return torch.export.export(_module(graph, steps, weights, half), examples)


def _halved(graph: Graph, half: str) -> Graph:
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
    found = {}
    for name, array in graph.constants.items():
        tensor = torch.from_numpy(np.array(array))
        if half and tensor.dtype == torch.float32 and name not in statistics:
            tensor = _rounded(tensor, half)
        if name in filters and tensor.ndim in orders:
            # A new tensor: 1x1 filters are in both orders at once, and would pass for the other one.
            tensor = torch.empty_like(tensor, memory_format=orders[tensor.ndim]).copy_(tensor)
        found[name] = tensor
    return found


def _rounded(tensor: Any, half: str) -> Any:
    import torch

    if half == "float16":
        # Masks hold the least float32, which must stay finite.
        tensor = torch.where(tensor.isfinite(), tensor.clamp(-_LARGEST_FLOAT16, _LARGEST_FLOAT16), tensor)
    return tensor.to(getattr(torch, half))


def _module(graph: Graph, steps: Sequence[Step], weights: Mapping[str, Any], half: str) -> Any:
    """The region as a module that runs its steps in order; defined here because its base class needs PyTorch."""
    import torch

    class Region(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._slots = {name: f"c{index}" for index, name in enumerate(weights)}
            for name, slot in self._slots.items():
                self.register_buffer(slot, weights[name])

        def forward(self, *arguments: Any) -> tuple[Any, ...]:
            values: Values = {name: getattr(self, slot) for name, slot in self._slots.items()}
            for name, tensor in zip(graph.inputs, arguments, strict=True):
                is_float = half and tensor.dtype == torch.float32
                values[name] = tensor.to(getattr(torch, half)) if is_float else tensor
            for step in steps:
                values.update(zip(step.outputs, step.run(values), strict=True))
            return tuple(values[name] for name in graph.outputs)

    return Region().eval()
