"""Memory planning for steps some of which run at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collage_evo.graph.ir.graph import members
from collage_evo.graph.ir.memory import MemoryPlan, place

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
            return all(not self.users[one] & ~self.before[maker] for maker in members(self.makers[other]))

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
