"""The plan of a region on cuDNN, as plain data: steps of one cuDNN graph each.

Every tensor of a step is a view of a buffer, with cuDNN's sizes and strides in elements; a tensor that exists only
inside a step has no buffer. Steps run one after the other and pass only buffers to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

HEAVY = frozenset({"conv_fprop", "conv_dgrad", "matmul", "sdpa"})
"""Operations that multiply and add: all others give one element for each element of their largest input."""
ITEMSIZE: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
Role = Literal["input", "output", "weight", "inner"]
Attribute = float | tuple[int, ...]


@dataclass(frozen=True)
class View:
    """A tensor of a step; without a ``buffer`` it exists only inside the step."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    buffer: str = ""


@dataclass(frozen=True)
class Operation:
    """One operation, named as the method of cuDNN's graph that makes it."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One cuDNN graph: its operations in order, and every tensor that they name."""

    operations: tuple[Operation, ...]
    tensors: tuple[View, ...]

    @property
    def heavy(self) -> bool:
        """Whether it multiplies and adds, so that the arithmetic is a choice."""
        return any(operation.kind in HEAVY for operation in self.operations)


@dataclass(frozen=True)
class Buffer:
    """Contiguous memory of one type that steps read and write."""

    name: str
    role: Role
    dtype: str
    size: int

    @property
    def nbytes(self) -> int:
        return self.size * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Plan:
    """A region: its buffers, those of its inputs and outputs in their order, and the steps in order.

    Raises:
        ValueError: a view exceeds its buffer, or an operation reads a tensor that its step does not have.
    """

    arithmetic: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    def buffer(self, name: str) -> Buffer:
        return next(buffer for buffer in self.buffers if buffer.name == name)

    def of(self, role: Role) -> tuple[Buffer, ...]:
        """The buffers with that role."""
        return tuple(buffer for buffer in self.buffers if buffer.role == role)

    def __post_init__(self) -> None:
        buffers = {buffer.name: buffer for buffer in self.buffers}
        missing = {*self.inputs, *self.outputs} - buffers.keys()
        for step in self.steps:
            names = {view.name for view in step.tensors}
            missing |= {name for call in step.operations for name in (*call.inputs, call.output)} - names
            for view in (view for view in step.tensors if view.buffer):
                buffer = buffers[view.buffer]
                if view.dtype != buffer.dtype or _end(view) > buffer.size:
                    raise ValueError(f"{view.name} does not lie in {view.buffer}")
        if missing:
            raise ValueError(f"there is no {min(missing)}")


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements with the last axis innermost."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements with the second axis innermost."""
    channels, *spatial = shape[1:]
    return (prod((channels, *spatial)), 1, *contiguous((*spatial, channels))[:-1])


def _end(view: View) -> int:
    """Elements of the buffer up to the last one of the view."""
    return 1 + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
