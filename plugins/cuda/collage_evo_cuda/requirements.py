"""What a GPU has to have for a library or an arithmetic."""

from __future__ import annotations

from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import UnavailableError
from collage_evo_cuda.gpu import gpu_capability

_MATRIX_INSTRUCTIONS = {Arithmetic.FLOAT16: (7, 0), Arithmetic.BFLOAT16: (8, 0), Arithmetic.TF32: (8, 0)}
"""The first compute capability with matrix instructions for it: before, it is as slow as float32, or slower."""


def lacks_gpu(least: tuple[int, int] = (0, 0), what: str = "") -> str:
    """Why the first GPU here cannot run ``what``, which needs a compute capability of ``least``; empty if it can."""
    try:
        capability = gpu_capability()
    except UnavailableError as missing:
        return f"no CUDA device here: {missing}"
    if capability >= least:
        return ""
    return f"{what} needs compute capability {least[0]}.{least[1]}, this GPU has {capability[0]}.{capability[1]}"


def lacks_arithmetic(arithmetic: Arithmetic) -> str:
    """Why the first GPU here has no use for ``arithmetic``; empty if it has."""
    needs = _MATRIX_INSTRUCTIONS.get(arithmetic)
    return lacks_gpu(needs, f"{arithmetic} arithmetic") if needs else ""
