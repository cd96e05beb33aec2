"""Export of a region for a GPU as a PyTorch file: an exported or a compiled program."""

from __future__ import annotations

from pathlib import Path

from collage_evo.backends.variants import Arithmetic
from collage_evo.graph.ir.graph import Graph
from collage_evo_cuda.torch.export import compile_program, export_region, halved, save_program
from collage_evo_cuda.torch.fusions import ATTENTIONS, FUSIONS
from collage_evo_cuda.torch_cuda.requirements import require_toolkit
from collage_evo_cuda.torch_cuda.switches import computing_in

HALVES = {Arithmetic.BFLOAT16: "bfloat16", Arithmetic.FLOAT16: "float16"}


def write_region(graph: Graph, arithmetic: Arithmetic, path: Path, compiled_for: str, threads: int) -> None:
    """Export the region, and compile it ahead of time if ``compiled_for`` names a device of PyTorch's.

    Half precision applies to all tensors that are float32 outside: inputs are rounded on entry, outputs are in half.
    Sums inside an operator (products, softmax, means, statistics of normalisations) stay in float32, as do the stored
    statistics of a BatchNormalization.

    Matrix instructions, which every arithmetic but exact float32 uses, take convolutions with their channels last;
    the operators around them follow. Where Inductor compiles, it fuses and orders the channels itself.

    Raises:
        UnavailableError: requirements for compiling for the GPU are missing.
    """
    import torch
    from torch.export import passes

    if compiled_for == "cuda":
        require_toolkit()
    torch.set_num_threads(threads)
    half = HALVES.get(arithmetic, "")
    region = halved(graph, half) if half else graph
    with torch.no_grad():
        if not compiled_for:
            save_program(export_region(region, FUSIONS, half, arithmetic is not Arithmetic.FLOAT32), path)
            return
        exported = export_region(region, ATTENTIONS, half)
        # Triton compiles the choice of TF32 into its products.
        with computing_in(arithmetic):
            # With its number: the program checks its tensors' devices.
            place = str(torch.empty(0, device=compiled_for).device)
            compile_program(passes.move_to_device_pass(exported, place), path, threads)
