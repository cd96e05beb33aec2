"""PyTorch as a user calls it: an ONNX file as a function of arrays.

Nothing here uses the runtime of collage_evo; the operators are those of its backend for PyTorch, in a module of their
own. On a GPU the arrays go through page-locked memory both ways, and cuDNN chooses its algorithms by timing them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.backends.variants import Arithmetic
from collage_evo.fitness.references import read_references
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.files import read_model
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.hardware.target import CPU, Target
from collage_evo_cuda.torch.export import export_region, halved
from collage_evo_cuda.torch.fusions import ATTENTIONS, FUSIONS
from collage_evo_cuda.torch_cuda.switches import computing_in

_always = ExitStack()
"""What holds until the process ends: entering it for each call would take time."""

Feeds = Mapping[str, np.ndarray]
Program = Callable[..., Sequence[Any]]
EAGER, COMPILED, EAGER_GRAPH, COMPILED_GRAPH = "eager", "compile", "eager, CUDA graph", "compile, CUDA graphs"
HALF_EAGER_GRAPH, HALF_COMPILED_GRAPH = (f"{way}, float16" for way in (EAGER_GRAPH, COMPILED_GRAPH))
_HALVES, _CAPTURED = (HALF_EAGER_GRAPH, HALF_COMPILED_GRAPH), (EAGER_GRAPH, HALF_EAGER_GRAPH)
TOLERANCE, EXACT_TOLERANCE = 2e-2, 1e-3
"""Largest relative error (2-norm) of an output, where PyTorch computes as it comes (on a GPU its convolutions are in
TF32) or in float16, and in float32 throughout."""


def ways(device: str, exact: bool) -> tuple[str, ...]:
    """In which ways people call PyTorch on a device: on a GPU in float16 too, unless outputs need to be ``exact``."""
    if device == CPU:
        return EAGER, COMPILED
    return EAGER, EAGER_GRAPH, COMPILED, COMPILED_GRAPH, *(() if exact else _HALVES)


def open_torch(
    way: str, exact: bool, model: Path, reference: Path, target: Target
) -> Callable[[Feeds], list[np.ndarray]]:
    """A call of ``model``, once its outputs were found to be right.

    Args:
        way: one of :func:`ways`. In float16 PyTorch rounds inputs, and converts outputs to float32.
        exact: in float32 throughout; else as PyTorch comes.
        model: an ONNX file.
        reference: inputs and outputs that the run kept.
        target: device and threads.

    Raises:
        SystemExit: an output is wrong.
    """
    import torch

    torch.set_num_threads(target.threads)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    if exact:
        _always.enter_context(computing_in(Arithmetic.FLOAT32, search=True))
    graph = build_graph(normalise(read_model(model)))
    compiled = way.startswith(COMPILED)
    module = _as_module(graph, not compiled, target.device, "float16" if way in _HALVES else "")
    if compiled:
        module = torch.compile(module, mode="default" if way == COMPILED else "reduce-overhead")
    program = module if target.device == CPU else _on_gpu(module, way in _CAPTURED)

    def run(feeds: Feeds) -> list[np.ndarray]:
        return [made.numpy() for made in program(*(torch.from_numpy(feeds[name]) for name in graph.inputs))]

    _check(run, graph, reference, EXACT_TOLERANCE if exact else TOLERANCE)
    return run


def _as_module(graph: Graph, fused: bool, place: str, half: str = "") -> Any:
    """The graph as a module of PyTorch on a device, whose only work in Python is the calls themselves.

    Attention is one call; if ``fused``, so are products with their bias and activation, which Inductor fuses itself.
    It computes in float32, or in ``half``, PyTorch's name of the type of its outputs then.
    """
    import torch
    from torch.export import passes

    region = halved(graph, half) if half else graph
    exported = export_region(region, FUSIONS if fused else ATTENTIONS, half, channels_last=bool(half))
    # With its number: the program checks its tensors' devices.
    numbered = str(torch.empty(0, device=place).device)
    return passes.move_to_device_pass(exported, numbered).module()


def _on_gpu(module: Program, captured: bool) -> Program:
    """The module with copies to and from the GPU around it; its work there is one CUDA graph if ``captured``."""
    import torch

    pinned: list[Any] = []
    static: list[Any] = []
    made: list[Any] = []
    graph = torch.cuda.CUDAGraph()

    def capture() -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                module(*static)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            made.extend(module(*static))

    def program(*arrays: Any) -> list[Any]:
        if not pinned:
            pinned.extend(torch.empty_like(tensor, pin_memory=True) for tensor in arrays)
            static.extend(tensor.cuda() for tensor in arrays)
        for page_locked, there, tensor in zip(pinned, static, arrays, strict=True):
            page_locked.copy_(tensor)
            there.copy_(page_locked, non_blocking=True)
        if captured:
            if not made:
                capture()
            graph.replay()
        results = made if captured else module(*static)
        fresh = [torch.empty(out.shape, dtype=_on_host(out.dtype), pin_memory=True) for out in results]
        for host, out in zip(fresh, results, strict=True):
            host.copy_(out, non_blocking=True)
        torch.cuda.synchronize()
        return fresh

    return program


def _on_host(dtype: Any) -> Any:
    import torch

    return torch.float32 if dtype == torch.float16 else dtype


def _check(run: Callable[[Feeds], list[np.ndarray]], graph: Graph, reference: Path, tolerance: float) -> None:
    for feeds, expected in read_references(reference):
        for name, array in zip(graph.outputs, run(feeds), strict=True):
            error = float(np.linalg.norm(array - expected[name]) / np.linalg.norm(expected[name]))
            if not error <= tolerance:
                sys.exit(f"PyTorch's {name} differs by {error:.2g}")
