"""Where tensors lie: takes sizes and which must not share memory, gives offsets in one arena, and arrays there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.ir import Tensor

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector that any backend loads."""


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets of tensors in an arena of ``size`` bytes."""

    offsets: Mapping[str, int]
    size: int


def place(sizes: Mapping[str, int], together: Callable[[str, str], bool], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Place each name, largest first, at the lowest offset where none lies that is needed together with it.

    Args:
        sizes: bytes of each.
        together: whether two of them may be needed at the same time; symmetric.
        alignment: of offsets, in bytes; sizes are rounded up to it.
    """
    placed: list[tuple[int, int, str]] = []
    offsets: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        size = -(-max(sizes[name], 1) // alignment) * alignment
        offset = 0
        for start, end, other in sorted(placed):
            if start < offset + size and offset < end and together(name, other):
                offset = end
        placed.append((offset, offset + size, name))
        offsets[name] = offset
    return MemoryPlan(offsets, max((end for _, end, _ in placed), default=0))


def _plain(nbytes: int) -> np.ndarray:
    return np.zeros(nbytes, np.uint8)


def allocate(
    plan: MemoryPlan,
    tensors: Mapping[str, Tensor],
    memory: Callable[[int], np.ndarray] = _plain,
    alignment: int = ALIGNMENT,
) -> dict[str, np.ndarray]:
    """One zeroed arena and a view of it for every planned tensor.

    ``memory`` gives so many zeroed bytes of the host. The arena begins at a multiple of ``alignment`` bytes.
    """
    arena = memory(plan.size + alignment)
    base = -arena.ctypes.data % alignment
    views = {}
    for name, offset in plan.offsets.items():
        tensor = tensors[name]
        part = arena[base + offset : base + offset + tensor.nbytes]
        views[name] = part.view(tensor.dtype).reshape(tensor.shape)
    return views
