"""A loaded region on lanes: binds its plan and its loaded parts to buffers.

Two tensors share memory only if all that use the one come before all that make the other in every order that the
handoffs allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from collage_evo.backends.base import Executable
from collage_evo.graph.ir.memory import MemoryPlan, allocate
from collage_evo_lanes.memory import StepUse
from collage_evo_lanes.plan import LanePlan
from collage_evo_lanes.run import LaneCall, Task

LINE = 128
"""Alignment of tensors in bytes, so that lanes do not take cache lines from each other: processors fetch lines of 64
bytes in pairs."""


class LoadedLanes:
    """``parts`` are in the order of the plan's parts; ``engine`` is the display name of the engine that built them.

    There are ``lanes`` of ``width`` cores each; the plan may use fewer.
    """

    def __init__(self, plan: LanePlan, parts: Sequence[Executable], engine: str, lanes: int, width: int) -> None:
        self._plan = plan
        self._parts = tuple(parts)
        self._engine = engine
        self._lanes, self._width = max(lanes, plan.lanes), width

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        arrays = self.arrays(inputs, outputs)
        return LaneCall(self._lanes, self.tasks(arrays), keep=arrays, width=self._width)

    def arrays(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """The caller's arrays and the arrays between parts, by name."""
        plan = self._plan
        borders = dict(zip((*plan.inputs, *plan.outputs), (*inputs, *outputs), strict=True))
        return {**borders, **allocate(plan_inner(plan), plan.tensors, alignment=LINE)}

    def tasks(self, arrays: Mapping[str, np.ndarray]) -> list[Task]:
        """The parts of all lanes in a sequential order; they need not hold ``arrays``."""
        tasks = []
        for part, loaded, waits in zip(self._plan.parts, self._parts, self._plan.handoffs(), strict=True):
            read, made = ([arrays[name] for name in side] for side in (part.inputs, part.outputs))
            tasks.append(Task(part.lane, loaded.bind(read, made), waits, f"{self._engine} in lane {part.lane}"))
        return tasks


def plan_inner(plan: LanePlan) -> MemoryPlan:
    """Offsets of the tensors that are neither the region's inputs nor its outputs."""
    borders, used = {*plan.inputs, *plan.outputs}, StepUse(plan.before)
    for place, part in enumerate(plan.parts):
        used.add(place, {*part.inputs} - borders, {*part.outputs} - borders)
    return used.place({name: plan.tensors[name].nbytes for name in used.users}, LINE)
