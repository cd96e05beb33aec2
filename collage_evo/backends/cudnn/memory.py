"""Where a plan's buffers lie: takes who uses each and who may run at one time, gives offsets in one memory."""

from __future__ import annotations

from collections.abc import Sequence

from collage_evo.backends.cudnn.plan import Buffer, Plan, Step
from collage_evo.graph.memory import MemoryPlan, StepUse, all_before, place

_ALIGNMENT = 256


def one_behind_the_other(buffers: tuple[Buffer, ...]) -> MemoryPlan:
    """Each in a place of its own."""
    return place({buffer.name: buffer.nbytes for buffer in buffers}, lambda one, other: True, _ALIGNMENT)


def waits_of(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """For each step the earlier ones that must have ended: who made what it reads, or used what it makes again."""
    users: dict[str, list[int]] = {}
    makers: dict[str, list[int]] = {}
    waits = []
    for number, step in enumerate(plan.steps):
        reads, makes = _use(step)
        needed = [makers.get(name, ()) for name in reads] + [users.get(name, ()) for name in makes]
        waits.append(tuple(sorted({other for others in needed for other in others})))
        for name in makes:
            makers.setdefault(name, []).append(number)
        for name in reads | makes:
            users.setdefault(name, []).append(number)
    return tuple(waits)


def inner_room(
    plan: Plan, waits: Sequence[Sequence[int]], workspaces: Sequence[int]
) -> tuple[MemoryPlan, tuple[str, ...]]:
    """The buffers between steps, and a workspace for each step: what is never needed at one time may share a place.

    Args:
        waits: as :func:`waits_of` has them.
        workspaces: bytes for each step.

    Returns:
        the places by name, and the names of the workspaces.
    """
    inner = {buffer.name: buffer.nbytes for buffer in plan.of("inner")}
    names = tuple(f"workspace of step {number}" for number in range(len(plan.steps)))
    used = StepUse(all_before(waits))
    for number, (step, name) in enumerate(zip(plan.steps, names, strict=True)):
        reads, makes = _use(step)
        used.add(number, reads & inner.keys(), {*(makes & inner.keys()), name})
    return used.place({**inner, **dict(zip(names, workspaces, strict=True))}, _ALIGNMENT), names


def _use(step: Step) -> tuple[set[str], set[str]]:
    """The buffers that a step reads, and those that it makes."""
    made = {operation.output for operation in step.operations}
    return (
        {view.buffer for view in step.tensors if view.buffer and view.name not in made},
        {view.buffer for view in step.tensors if view.buffer and view.name in made},
    )
