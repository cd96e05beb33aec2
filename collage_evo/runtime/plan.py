"""Memory plan of sequential steps: offsets of tensors in one arena, reused after their lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.memory import ALIGNMENT, MemoryPlan, place


@dataclass(frozen=True)
class Lifetime:
    """A tensor and the steps during which its contents matter, both ends included."""

    tensor: Tensor
    first: int
    last: int


def plan_memory(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Place tensors so that none shares memory with another that is alive at the same time.

    The planner is :func:`place`, as everywhere. For sequential steps a lifetime is a span; for streams, whose
    order is open, :class:`collage_evo.graph.ir.memory.StepUse` derives it from the steps' waits. Offsets are
    multiples of ``alignment`` bytes.
    """
    alive = {life.tensor.name: (life.first, life.last) for life in lifetimes}

    def together(name: str, other: str) -> bool:
        (first, last), (other_first, other_last) = alive[name], alive[other]
        return other_first <= last and first <= other_last

    return place({life.tensor.name: life.tensor.nbytes for life in lifetimes}, together, alignment)
