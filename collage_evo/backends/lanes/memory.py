"""Where a plan's tensors lie: takes what comes before what and the caller's arrays, gives an array for each tensor.

Two tensors share memory only if all that use the one come before all that make the other in every order that the
handoffs allow. Each begins on a cache line of its own, so that lanes do not take lines from each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from collage_evo.backends.lanes.order import Order, use_of
from collage_evo.graph.memory import MemoryPlan, StepUse, allocate

LINE = 128
"""Bytes: processors fetch cache lines of 64 bytes in pairs."""


def plan_inner(order: Order) -> MemoryPlan:
    """Offsets of the tensors that are neither the region's inputs or outputs nor views."""
    plan = order.plan
    borders = {*plan.inputs, *plan.outputs}
    used = StepUse(order.before)
    for index, step in enumerate(plan.steps):
        use = use_of(step)
        reads, makes = ({plan.root(name) for name in names} - borders for names in (use.reads, use.makes))
        used.add(index, reads, makes)
    return used.place({name: plan.tensors[name].nbytes for name in used.users}, LINE)


def arrays_of(order: Order, borders: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An array for every tensor that a step uses; ``borders`` has those of the region's inputs and outputs."""
    plan = order.plan
    arrays = {**borders, **allocate(plan_inner(order), plan.tensors, alignment=LINE)}

    def array(name: str) -> np.ndarray:
        if name not in arrays:
            view = plan.views[name]
            arrays[name] = part_of(array(view.parent), view.axis, view.start, view.stop)
        return arrays[name]

    for step in plan.steps:
        use = use_of(step)
        for name in (*use.reads, *use.makes):
            array(name)
    return arrays


def part_of(array: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
    """Elements ``start`` to ``stop`` of ``axis``, all of the other axes."""
    return array[(slice(None),) * axis + (slice(start, stop),)]
