"""Memory plan: takes tensors with their lifetimes, gives each an offset in one arena, reused once it is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.ir import Tensor

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector that any backend loads."""


@dataclass(frozen=True)
class Lifetime:
    """A tensor and the steps during which its contents matter, both ends included."""

    tensor: Tensor
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets of tensors in an arena of ``size`` bytes."""

    offsets: Mapping[str, int]
    size: int


def _plain(nbytes: int) -> np.ndarray:
    return np.zeros(nbytes, np.uint8)


def plan_memory(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Place tensors, largest first, at the lowest offset where no tensor alive at the same time lies.

    Offsets are multiples of ``alignment`` bytes.
    """
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, int] = {}
    for life in sorted(lifetimes, key=lambda x: (-x.tensor.nbytes, x.tensor.name)):
        size = _aligned(life.tensor.nbytes, alignment)
        offset = 0
        for start, end, other in sorted(placed, key=lambda p: p[0]):
            together = other.first <= life.last and life.first <= other.last
            if together and start < offset + size and offset < end:
                offset = end
        placed.append((offset, offset + size, life))
        offsets[life.tensor.name] = offset
    return MemoryPlan(offsets, max((end for _, end, _ in placed), default=0))


def allocate(
    plan: MemoryPlan, tensors: Mapping[str, Tensor], memory: Callable[[int], np.ndarray] = _plain
) -> dict[str, np.ndarray]:
    """One zeroed arena and a view of it for every planned tensor.

    ``memory`` gives so many zeroed bytes of the host.
    """
    arena = memory(plan.size + ALIGNMENT)
    base = -arena.ctypes.data % ALIGNMENT
    views = {}
    for name, offset in plan.offsets.items():
        tensor = tensors[name]
        part = arena[base + offset : base + offset + tensor.nbytes]
        views[name] = part.view(tensor.dtype).reshape(tensor.shape)
    return views


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-max(nbytes, 1) // alignment) * alignment
