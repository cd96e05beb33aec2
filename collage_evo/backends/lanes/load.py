"""A loaded region on lanes: takes its plan and its parts as their engine loaded them, gives calls on buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from collage_evo.backends.base import Executable
from collage_evo.backends.lanes.memory import arrays_of, part_of
from collage_evo.backends.lanes.order import Order
from collage_evo.backends.lanes.plan import Copy
from collage_evo.backends.lanes.run import LaneCall, Task


class LoadedLanes:
    """``parts`` are in the order of the plan's parts; ``engine`` is what people call the one that built them.

    There are ``lanes`` of ``width`` cores each, of which the plan may use fewer.
    """

    def __init__(self, order: Order, parts: Sequence[Executable], engine: str, lanes: int, width: int) -> None:
        self._order = order
        self._parts = tuple(parts)
        self._engine = engine
        self._lanes, self._width = max(lanes, order.plan.lanes), width

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        arrays = self.arrays(inputs, outputs)
        return LaneCall(self._lanes, self.tasks(arrays), keep=arrays, width=self._width)

    def arrays(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """The caller's arrays and those between parts, by name."""
        plan = self._order.plan
        borders = dict(zip((*plan.inputs, *plan.outputs), (*inputs, *outputs), strict=True))
        return arrays_of(self._order, borders)

    def tasks(self, arrays: Mapping[str, np.ndarray]) -> list[Task]:
        """The steps of all lanes, in an order in which one could do them; they need not hold ``arrays``."""
        plan = self._order.plan
        parts = iter(self._parts)
        tasks = []
        for step, waits in zip(plan.steps, self._order.handoffs(), strict=True):
            if isinstance(step, Copy):
                call: Callable[[], object] = _copy(step, arrays)
                told = f"a copy to {step.target} in lane {step.lane}"
            else:
                read, made = ([arrays[name] for name in side] for side in (step.inputs, step.outputs))
                call = next(parts).bind(read, made)
                told = f"{self._engine} in lane {step.lane}"
            tasks.append(Task(step.lane, call, waits, told))
        return tasks


def _copy(step: Copy, arrays: Mapping[str, np.ndarray]) -> Callable[[], None]:
    part = part_of(arrays[step.larger], step.axis, step.start, step.stop)
    target, source = (part, arrays[step.source]) if step.join else (arrays[step.target], part)
    return partial(np.copyto, target, source)
