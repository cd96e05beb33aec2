"""Requirements of PyTorch for the GPU here: arithmetic, toolkit and architecture, each with the reason if unmet."""

from __future__ import annotations

import os
import runpy
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import UnavailableError
from collage_evo_cuda.gpu import gpu_capability
from collage_evo_cuda.requirements import lacks_arithmetic, lacks_gpu


def unusable(arithmetic: Arithmetic) -> str:
    """Why PyTorch does not compute in ``arithmetic`` on the first GPU, with the remedy; empty if it does."""
    return _without_gpu() or lacks_arithmetic(arithmetic)


@cache
def _without_gpu() -> str:
    version = built_for()
    if not version:
        return "torch was built without CUDA: install a CUDA build"
    if reason := lacks_gpu():
        return reason
    import torch

    if not torch.cuda.is_available():
        return f"torch for CUDA {version} cannot use this GPU: its driver may be too old, update it"
    return without_code(torch.cuda.get_arch_list(), gpu_capability(), version)


def require_toolkit() -> None:
    """Make sure, before any long work, that Inductor can compile and link its C++ for the GPU.

    Raises:
        UnavailableError: CUDA's headers are not here.
    """
    from torch.utils import cpp_extension

    if not cpp_extension.CUDA_HOME:
        raise UnavailableError("Inductor compiles C++ with CUDA's headers: install a CUDA toolkit and set CUDA_HOME")
    # Inductor finds the toolkit's stub of the driver only by this variable; the driver itself may lack the file to
    # link.
    os.environ.setdefault("CUDA_HOME", cpp_extension.CUDA_HOME)


def built_for() -> str:
    """The version of CUDA that the installed PyTorch was built for; empty if none.

    PyTorch itself is not imported: that takes seconds, and most machines have no GPU.
    """
    spec = find_spec("torch")
    for folder in (spec and spec.submodule_search_locations) or ():
        return str(runpy.run_path(str(Path(folder) / "version.py")).get("cuda") or "")
    return ""


def without_code(architectures: Sequence[str], capability: tuple[int, int], version: str) -> str:
    """Why a build of PyTorch with code for ``architectures`` does not run on a GPU; empty if it does.

    Binaries (``sm_80``) run on later GPUs of the same major number, PTX (``compute_80``) on all later ones; binaries
    of a single GPU (``sm_90a``) do not count.
    """
    for name in architectures:
        kind, _, number = name.partition("_")
        if number.isdecimal():
            made_for = int(number[:-1]), int(number[-1])
            if made_for <= capability and (kind == "compute" or made_for[0] == capability[0]):
                return ""
    there = ", ".join(architectures) or "none"
    return (
        f"torch for CUDA {version} has no code for compute capability {capability[0]}.{capability[1]} (it has "
        f"{there}): install a build for another version of CUDA"
    )
