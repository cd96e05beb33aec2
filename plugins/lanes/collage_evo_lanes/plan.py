"""The plan of lanes: compiled parts by lane, the tensors between them, and the waits of lanes.

``plan.json`` holds it and is untrusted: a plan that contradicts itself cannot be constructed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from collage_evo.graph.ir.elements import NUMPY
from collage_evo.graph.ir.graph import Tensor, members
from collage_evo_lanes.memory import StepSet, all_before

_MOST_LANES = 4096
"""More than any machine has cores for."""


@dataclass(frozen=True)
class Part:
    """One compiled piece, run by ``lane``; tensors in the order of the piece's own inputs and outputs."""

    lane: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class LanePlan:
    """A region's work on ``lanes`` lanes.

    ``parts`` are in an order in which they could run one after the other; each lane runs its own in this order.
    ``tensors`` are the inputs and outputs, by the names that they have in the region's model, and all between.

    Raises:
        ValueError: a lane or a tensor is invalid, or a tensor is not made exactly once before it is read.
    """

    lanes: int
    parts: tuple[Part, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= _MOST_LANES:
            raise ValueError(f"{self.lanes} lanes")
        for name, tensor in self.tensors.items():
            if tensor.dtype not in NUMPY or not tensor.static or any(size < 1 for size in tensor.shape):
                raise ValueError(f"{name} is {tensor.dtype}{list(tensor.shape)}: empty, or of no known type or size")
        there = set(self.inputs)
        for place, part in enumerate(self.parts):
            if not 0 <= part.lane < self.lanes:
                raise ValueError(f"a part of lane {part.lane}")
            if early := [name for name in part.inputs if name not in there]:
                raise ValueError(f"part {place} reads {early[0]}, which nothing before it makes")
            for name in part.outputs:
                if name in there:
                    raise ValueError(f"{name} is made twice")
                there.add(name)
        if lost := [name for name in self.outputs if name not in there - set(self.inputs)]:
            raise ValueError(f"nothing makes {lost[0]}")
        if lost := [name for name in there if name not in self.tensors]:
            raise ValueError(f"there is no {lost[0]}")
        if len({*self.inputs, *self.outputs}) < len(self.inputs) + len(self.outputs):
            raise ValueError("an input or output is named twice")

    @cached_property
    def needs(self) -> tuple[StepSet, ...]:
        """For each part those that make its inputs."""
        makers = {name: 1 << place for place, part in enumerate(self.parts) for name in part.outputs}
        return tuple(sum({makers[name] for name in part.inputs if name in makers}) for part in self.parts)

    @cached_property
    def before(self) -> tuple[StepSet, ...]:
        """For each part all that precede it in every order that needs and the sequence of each lane allow."""
        waits: list[list[int]] = []
        last: dict[int, int] = {}
        for place, part in enumerate(self.parts):
            waits.append([*members(self.needs[place]), *([last[part.lane]] if part.lane in last else [])])
            last[part.lane] = place
        return all_before(waits)

    def handoffs(self) -> tuple[tuple[int, ...], ...]:
        """For each part those of other lanes that its lane waits for: at most one a lane, none that others imply."""
        waits: list[tuple[int, ...]] = []
        known: dict[int, StepSet] = {}
        for place, part in enumerate(self.parts):
            done = known.get(part.lane, 0)
            chosen = []
            for other in sorted(members(self.needs[place] & ~done), reverse=True):
                if self.parts[other].lane != part.lane and not done >> other & 1:
                    chosen.append(other)
                    done |= 1 << other | self.before[other]
            known[part.lane] = done | 1 << place
            waits.append(tuple(chosen))
        return tuple(waits)
