"""A GPU as TVM's target."""

from __future__ import annotations

import re
from typing import Any

from collage_evo.backends.base import Target
from collage_evo.errors import InputError

WEIGHTS = "OHWI"
"""Layout of convolutions' weights: neighbouring threads read neighbours."""


def gpu_target(target: Target) -> Any:
    """``target``, which need not be here, with a plain processor of this kind as its host.

    Raises:
        InputError: the target's description does not contain its compute capability.
    """
    import tvm

    limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 48 << 10, "registers_per_block": 64 << 10}
    arch = "sm_{}{}".format(*capability_of(target))
    return tvm.target.Target(
        {"kind": "cuda", "arch": arch, "thread_warp_size": 32, **limits, "host": {"kind": "llvm"}}
    )


def capability_of(target: Target) -> tuple[int, int]:
    """Compute capability of the GPU ``target``.

    Raises:
        InputError: the target's description does not contain it.
    """
    match = re.search(r"compute capability (\d+)\.(\d+)", target.accelerator)
    if match is None:
        raise InputError(f"the target {target.description} has no compute capability")
    return int(match[1]), int(match[2])
