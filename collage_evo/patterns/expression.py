"""Expressions of drawn patterns: operators, called as functions, and the values between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from collage_evo.errors import ConfigError
from collage_evo.graph.ir.graph import Graph, Node

NodeCondition = Callable[[Graph, Node], bool]
"""Whether the node fits."""
TensorCondition = Callable[[Graph, str], bool]
"""Whether the tensor of that name fits."""
Shape = tuple[int | None, ...]
"""Sizes of a tensor's axes; None for any size."""


@dataclass(frozen=True, eq=False)
class Value:
    """A placeholder for one tensor; used twice, it stands for the same tensor twice."""


@dataclass(frozen=True, eq=False)
class Anything(Value):
    """Any tensor that meets the conditions; with ``constant``, only a constant of the model."""

    dtype: str | None = None
    shape: Shape | None = None
    where: TensorCondition | None = None
    constant: bool = False

    def fits(self, graph: Graph, name: str) -> bool:
        """Whether the tensor meets the conditions."""
        tensor = graph.tensors[name]
        if self.constant and name not in graph.constants:
            return False
        if self.dtype not in (None, tensor.dtype):
            return False
        if self.shape is not None and not _same(tensor.shape, self.shape):
            return False
        return self.where is None or self.where(graph, name)


@dataclass(frozen=True, eq=False)
class Either(Value):
    """One of several alternatives; each that fits gives a separate match."""

    choices: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Operator:
    """A node of one of ``types``; none means any. ``inputs`` may have ``...`` at its end, and then at its start too.

    ``...`` at the end: there may be further inputs. At the start too: what is listed is one of them, anywhere.
    """

    types: frozenset[str]
    inputs: tuple[Value | EllipsisType | None, ...]
    attributes: dict[str, Any]
    where: NodeCondition | None = None

    def takes(self, node: Node) -> bool:
        """Whether the node has one of the types, in the standard domain."""
        return not self.types or (node.op_type in self.types and node.domain in ("", "ai.onnx"))


@dataclass(frozen=True, eq=False)
class Result(Value):
    """Output number ``position`` of an operator."""

    operator: Operator
    position: int = 0

    def output(self, position: int) -> Result:
        """Another output of the same operator."""
        return Result(self.operator, position)


class Ops:
    """The first argument of a pattern function: ``op.Conv(x, w)`` is an operator's first output."""

    def __getattr__(self, op_type: str) -> Callable[..., Result]:
        return self.any_of(op_type)

    def any_of(self, *types: str) -> Callable[..., Result]:
        """Makes operators of one of several types, or of any: ``op.any_of("Relu", "Clip")(x, ...)``."""

        def make(
            *inputs: Value | EllipsisType | None, where: NodeCondition | None = None, **attributes: Any
        ) -> Result:
            """An operator on ``inputs``; one of None is absent.

            ``(x, ...)``: x and any further inputs; ``(..., x, ...)``: x is one of them. An attribute is compared
            with the node's or its default; a function gets the value and decides.
            """
            if ... in inputs[:-1] and not (len(inputs) == 3 and inputs[0] is inputs[2] is ...):
                raise ConfigError(f"{' or '.join(types)}: ... stands last, or on both sides of one input")
            return Result(Operator(frozenset(types), inputs, attributes, where))

        return make


def value(dtype: str | None = None, shape: Shape | None = None, where: TensorCondition | None = None) -> Anything:
    """A tensor with conditions on its type; ``where`` returns whether it fits."""
    return Anything(dtype, shape, where)


def constant(dtype: str | None = None, shape: Shape | None = None, where: TensorCondition | None = None) -> Anything:
    """A constant of the model."""
    return Anything(dtype, shape, where, constant=True)


def either(*choices: Value) -> Either:
    """Any of several."""
    return Either(choices)


def optional(step: Callable[[Value], Value], x: Value) -> Either:
    """``step(x)`` or ``x`` itself."""
    return Either((step(x), x))


def chain(step: Callable[[Value], Value], x: Value, most: int) -> Either:
    """``step`` once or more, up to ``most`` times, one after the other from ``x`` on."""
    choices = [step(x)]
    while len(choices) < most:
        choices.append(step(choices[-1]))
    return Either(tuple(choices))


def _same(shape: tuple[int, ...], expected: Shape) -> bool:
    return len(shape) == len(expected) and all(w in (None, f) for f, w in zip(shape, expected, strict=True))
