"""What runs in which lane: parts that an engine compiled for one thread, copies, and the tensors between them.

``plan.json`` holds it. It is read as if an enemy had written it: see :meth:`LanePlan.loads`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from collage_evo.codec import from_plain, to_json
from collage_evo.graph.elements import NUMPY
from collage_evo.graph.ir import Tensor


@dataclass(frozen=True)
class View:
    """Where a tensor lies inside another: elements ``start`` to ``stop`` of ``axis``; all axes before have size 1.

    So it is one stretch of memory, and whoever makes it has made that part of ``parent``. The region's own inputs and
    outputs are no views, because their memory is the caller's. They may be parents: parts of an input are read there,
    parts of an output made there.
    """

    parent: str
    axis: int
    start: int
    stop: int


def root(views: Mapping[str, View], name: str) -> str:
    """The tensor that is none of ``views`` and in whose memory ``name`` lies."""
    while name in views:
        name = views[name].parent
    return name


@dataclass(frozen=True)
class Part:
    """One compiled piece, run by ``lane``; tensors in the order of the piece's own inputs and outputs."""

    lane: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Copy:
    """A copy that ``lane`` makes itself, of elements ``start`` to ``stop`` of ``axis`` of the larger of two tensors.

    With ``join`` all of ``source`` goes there in ``target``; without, ``target`` gets these of ``source``.
    """

    lane: int
    source: str
    target: str
    axis: int
    start: int
    stop: int
    join: bool

    @property
    def larger(self) -> str:
        """The tensor of which only a part is copied."""
        return self.target if self.join else self.source

    @property
    def smaller(self) -> str:
        """The tensor that is copied from, or to, as a whole."""
        return self.source if self.join else self.target


@dataclass(frozen=True)
class LanePlan:
    """A region's work on ``lanes`` lanes.

    ``steps`` are in an order in which they could run one after the other; each lane takes its own in this order.
    ``tensors`` are the inputs and outputs, by the names that they have in the region's model, and all between.
    """

    lanes: int
    steps: tuple[Part | Copy, ...]
    tensors: Mapping[str, Tensor]
    views: Mapping[str, View]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The compiled pieces, in order."""
        return tuple(step for step in self.steps if isinstance(step, Part))

    def root(self, name: str) -> str:
        """The tensor that is no view and in whose memory ``name`` lies."""
        return root(self.views, name)

    def dumps(self) -> str:
        """As JSON text."""
        return to_json(self, indent=1)

    @staticmethod
    def loads(text: str) -> LanePlan:
        """The plan that :meth:`dumps` wrote.

        Raises:
            Exception: it is no such text, or contradicts itself; what it says of steps is for
                :func:`~collage_evo.backends.lanes.order.order_of` to check.
        """
        data = json.loads(text)
        for name, told in data["tensors"].items():
            if isinstance(told, list):  # older ones have the name once
                told.insert(0, name)
        plan = from_plain(data, LanePlan)
        plan.check()
        return plan

    def check(self) -> None:
        """Make sure that names are known, lanes are in range, and views and copies lie inside their tensors.

        Raises:
            ValueError: it is not so; says where.
        """
        if type(self.lanes) is not int or not 1 <= self.lanes <= _MOST_LANES:
            raise ValueError(f"{self.lanes!r} lanes")
        for tensor in self.tensors.values():
            _check_tensor(tensor)
        for side in (self.inputs, self.outputs):
            if missing := [name for name in side if name not in self.tensors]:
                raise ValueError(f"there is no {missing[0]}")
        borders = (*self.inputs, *self.outputs)
        if len(set(borders)) != len(borders) or self.views.keys() & set(borders):
            raise ValueError("an input or output is named twice or lies in another tensor")
        for name, view in self.views.items():
            self._check_slice(name, view.parent, view.axis, view.start, view.stop)
            if math.prod(self.tensors[view.parent].shape[: view.axis]) != 1:
                raise ValueError(f"{name} is no one stretch of {view.parent}")
        self._check_roots()
        for step in self.steps:
            if type(step.lane) is not int or not 0 <= step.lane < self.lanes:
                raise ValueError(f"a step of lane {step.lane!r}")
            if isinstance(step, Copy):
                self._check_slice(step.smaller, step.larger, step.axis, step.start, step.stop)
            elif missing := [name for name in (*step.inputs, *step.outputs) if name not in self.tensors]:
                raise ValueError(f"there is no {missing[0]}")

    def _check_slice(self, inner: str, outer: str, axis: int, start: int, stop: int) -> None:
        if missing := {inner, outer} - self.tensors.keys():
            raise ValueError(f"there is no {min(missing)}")
        part, whole = self.tensors[inner], self.tensors[outer]
        if {type(axis), type(start), type(stop)} != {int} or not 0 <= axis < len(whole.shape):
            raise ValueError(f"{inner} has no such place in {outer}")
        shape = (*whole.shape[:axis], stop - start, *whole.shape[axis + 1 :])
        if not 0 <= start < stop <= whole.shape[axis] or part.shape != shape or part.dtype != whole.dtype:
            raise ValueError(f"{inner} does not lie in {outer}")

    def _check_roots(self) -> None:
        for name in self.views:
            seen = {name}
            while name in self.views:
                name = self.views[name].parent
                if name in seen:
                    raise ValueError(f"{name} lies in itself")
                seen.add(name)


_MOST_LANES = 4096
"""More than any machine has cores for."""


def _check_tensor(tensor: Tensor) -> None:
    if tensor.dtype not in NUMPY:
        raise ValueError(f"{tensor.name} is of no known type")
    if any(type(size) is not int or size < 1 for size in tensor.shape):
        raise ValueError(f"{tensor.name} is {tensor.shape}, empty or of no known size")
