"""Memory planning: offsets of tensors in one arena by size and lifetime, and the arrays there."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collage_evo.graph.ir.graph import Tensor, members

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


StepSet = int
"""Steps by their number, as bits."""


@dataclass(frozen=True)
class StepUse:
    """The steps that use each tensor and those that make it, where some steps may run at the same time.

    ``before`` gives for each step those that have ended when it begins.
    """

    before: Sequence[StepSet]
    users: dict[str, StepSet] = field(default_factory=dict)
    makers: dict[str, StepSet] = field(default_factory=dict)

    def add(self, step: int, reads: Iterable[str], makes: Iterable[str]) -> None:
        """Record that the step reads and makes these."""
        outputs = tuple(makes)
        for name in outputs:
            self.makers[name] = self.makers.get(name, 0) | 1 << step
        for name in (*reads, *outputs):
            self.users[name] = self.users.get(name, 0) | 1 << step

    def place(self, sizes: Mapping[str, int], alignment: int) -> MemoryPlan:
        """:func:`place` where tensors share memory only if all that use the one come before all that make the other.

        This holds for every order of the steps that ``before`` allows. ``sizes`` holds tensors that were added.
        """

        def gone(one: str, other: str) -> bool:
            made = self.makers.get(other, 0)  # no step makes an empty tensor
            return all(not self.users[one] & ~self.before[maker] for maker in members(made))

        return place(sizes, lambda one, other: not gone(one, other) and not gone(other, one), alignment)


def all_before(waits: Sequence[Sequence[int]]) -> tuple[StepSet, ...]:
    """For each step all that have ended when it begins, from those earlier ones that it directly waits for."""
    before: list[StepSet] = []
    for needed in waits:
        earlier = 0
        for step in needed:
            earlier |= before[step] | 1 << step
        before.append(earlier)
    return tuple(before)


def _plain(nbytes: int) -> np.ndarray:
    return np.zeros(nbytes, np.uint8)


def allocate(
    plan: MemoryPlan,
    tensors: Mapping[str, Tensor],
    memory: Callable[[int], np.ndarray] = _plain,
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
