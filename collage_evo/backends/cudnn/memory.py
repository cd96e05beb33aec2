"""Where a plan's buffers lie: takes when each is used, gives offsets in one piece of memory."""

from __future__ import annotations

from collage_evo.backends.cudnn.plan import Buffer, Plan
from collage_evo.graph.memory import MemoryPlan, place

_ALIGNMENT = 256


def one_behind_the_other(buffers: tuple[Buffer, ...]) -> MemoryPlan:
    """Each in a place of its own."""
    return place({buffer.name: buffer.nbytes for buffer in buffers}, lambda one, other: True, _ALIGNMENT)


def inner_room(plan: Plan) -> MemoryPlan:
    """The buffers between steps: two that no step needs at one time may share a place."""
    used: dict[str, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for view in step.tensors:
            used.setdefault(view.buffer, []).append(number)

    def together(one: str, other: str) -> bool:
        return used[other][0] <= used[one][-1] and used[one][0] <= used[other][-1]

    return place({buffer.name: buffer.nbytes for buffer in plan.of("inner")}, together, _ALIGNMENT)
