"""Memory planning: offsets of tensors in one arena by size and lifetime, and the arrays there."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.ir.graph import Tensor

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector that any backend loads."""


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets of tensors in an arena of ``size`` bytes."""

    offsets: Mapping[str, int]
    size: int


def place(sizes: Mapping[str, int], together: Callable[[str, str], bool], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Place each name, largest first, at the lowest offset where no tensor lies that is needed at the same time.

    Args:
        sizes: of each, in bytes.
        together: whether two of them may be needed at the same time; symmetric.
        alignment: of offsets, in bytes; sizes are rounded up to it.
    """
    placed: list[tuple[int, int, str]] = []
    offsets: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        size = -(-max(sizes[name], 1) // alignment) * alignment
        offset = 0
        for start, end, other in placed:
            if start >= offset + size:
                break
            if offset < end and together(name, other):
                offset = end
        insort(placed, (offset, offset + size, name))
        offsets[name] = offset
    return MemoryPlan(offsets, max((end for _, end, _ in placed), default=0))


@dataclass(frozen=True)
class Lifetime:
    """A tensor of ``nbytes`` and the steps during which its contents matter, both ends included."""

    name: str
    nbytes: int
    first: int
    last: int


def plan_memory(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> MemoryPlan:
    """:func:`place` for sequential steps: no tensor shares memory with another that is alive at the same time."""
    alive = {life.name: (life.first, life.last) for life in lifetimes}

    def together(name: str, other: str) -> bool:
        (first, last), (other_first, other_last) = alive[name], alive[other]
        return other_first <= last and first <= other_last

    return place({life.name: life.nbytes for life in lifetimes}, together, alignment)


def allocate(
    plan: MemoryPlan,
    tensors: Mapping[str, Tensor],
    memory: Callable[[int], np.ndarray] = lambda nbytes: np.zeros(nbytes, np.uint8),
    alignment: int = ALIGNMENT,
) -> dict[str, np.ndarray]:
    """One zeroed arena and a view of it for every planned tensor.

    ``memory`` allocates that many zeroed bytes of the host. The arena begins at a multiple of ``alignment`` bytes.
    """
    arena = memory(plan.size + alignment)
    base = -arena.ctypes.data % alignment
    views = {}
    for name, offset in plan.offsets.items():
        tensor = tensors[name]
        part = arena[base + offset : base + offset + tensor.nbytes]
        views[name] = part.view(tensor.dtype).reshape(tensor.shape)
    return views
