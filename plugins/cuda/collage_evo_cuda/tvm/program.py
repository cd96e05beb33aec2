"""A lowered model as a list of kernel calls, plain data for the loader, from Relax's ``main``.

TVM's virtual machine takes its buffers from a pool at every call, which other models use too, and copies its outputs.
Here every tensor has a fixed place: an input, an output, a weight, or a range of one private piece of memory. So a
call allocates nothing, and its launches can be captured once and replayed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

ALIGNMENT = 256
"""Bytes at a multiple of which each buffer begins."""
INPUT, OUTPUT, WEIGHT, SCRATCH = "input", "output", "weight", "scratch"
_LOOSE = "loose"
"""A buffer whose place is still unknown."""


@dataclass(frozen=True)
class View:
    """A tensor: the kind of its memory, the number or first byte there, its shape and its type."""

    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Step:
    """One kernel function and its arguments, with the tensors that it writes at the end."""

    function: str
    tensors: tuple[View, ...]


@dataclass(frozen=True)
class Program:
    """Steps in order, and the bytes that all intermediate tensors need together."""

    steps: tuple[Step, ...]
    scratch_bytes: int


@dataclass(frozen=True)
class Made:
    """A program, its weights in the order of their numbers, and the copies that its kernels do not do yet."""

    program: Program
    weights: tuple[np.ndarray, ...]
    copies: tuple[tuple[str, View], ...]


def make_program(module: Any) -> Made:
    """The steps of ``module``'s main, whose storage TVM has planned.

    Raises:
        ValueError: ``main`` does something else than call kernels on tensors of fixed shapes.
    """
    return _Walk(module["main"]).made()


class _Walk:
    """Walks the bindings of ``main`` and records the meaning of each name."""

    def __init__(self, main: Any) -> None:
        from tvm import relax

        self._relax = relax
        self._main = main
        self._known: dict[Any, Any] = {}
        self._weights: list[np.ndarray] = []
        self._steps: list[Step] = []
        self._scratch = self._loose = 0

    def made(self) -> Made:
        for position, parameter in enumerate(self._main.params):
            self._known[parameter] = View(INPUT, position, *self._typed(parameter.ty))
        body = self._main.body
        for block in body.blocks:
            for binding in block.bindings:
                self._known[binding.var] = self._value(binding.value)
        results = self._value(body.body)
        return self._with_outputs(results if isinstance(results, tuple) else (results,))

    def _value(self, expression: Any) -> Any:
        relax = self._relax
        if isinstance(expression, relax.Var):
            return self._known[expression]
        if isinstance(expression, relax.Tuple):
            return tuple(self._value(field) for field in expression.fields)
        if isinstance(expression, relax.TupleGetItem):
            return self._value(expression.tuple_value)[expression.index]
        if isinstance(expression, relax.Call):
            return self._called(expression)
        if hasattr(expression, "value") and hasattr(expression.value, "numpy"):
            return self._weight(expression.value.numpy())
        raise ValueError(f"{type(expression).__name__} is no call of a kernel")

    def _called(self, call: Any) -> Any:
        from tvm.ir import GlobalVar

        if isinstance(call.op, GlobalVar):
            self._steps.append(Step(call.op.name_hint, tuple(self._value(argument) for argument in call.args)))
            return None
        name = getattr(call.op, "name", "")
        if name == "relax.memory.alloc_storage":
            offset, self._scratch = self._scratch, self._scratch + _aligned(int(call.args[0].values[0]))
            return offset
        if name == "relax.memory.alloc_tensor":
            storage, offset, shape, dtype = call.args[:4]
            return View(SCRATCH, self._value(storage) + int(offset.value), _sizes(shape), str(dtype.value))
        if name == "relax.builtin.alloc_tensor":
            # TVM plans no storage for outputs: their place is known when the outputs are.
            self._loose += 1
            return View(_LOOSE, self._loose, _sizes(call.args[0]), str(call.args[1].value))
        if name == "relax.reshape":
            return replace(self._value(call.args[0]), shape=self._typed(call.ty)[0])
        if name in ("relax.memory.kill_storage", "relax.memory.kill_tensor"):
            return None
        raise ValueError(f"{name or call.op} is no call of a kernel")

    def _weight(self, value: np.ndarray) -> View:
        self._weights.append(np.array(value, order="C"))
        return View(WEIGHT, len(self._weights) - 1, tuple(value.shape), value.dtype.name)

    def _typed(self, kind: Any) -> tuple[tuple[int, ...], str]:
        return _sizes(kind.shape), str(kind.dtype)

    def _with_outputs(self, results: tuple[View, ...]) -> Made:
        """Put outputs into the caller's buffers; an output that is returned twice, or is an input, is copied."""
        homes: dict[int, tuple[str, int]] = {}
        copied = []
        for position, view in enumerate(results):
            if view.kind == _LOOSE and view.index not in homes:
                homes[view.index] = (OUTPUT, position)
            else:
                copied.append((position, view))
        steps = [Step(step.function, tuple(self._placed(v, homes) for v in step.tensors)) for step in self._steps]
        copies = []
        for number, (position, view) in enumerate(copied):
            source, function = self._placed(view, homes), f"copy{number}"
            steps.append(Step(function, (source, View(OUTPUT, position, view.shape, view.dtype))))
            copies.append((function, source))
        return Made(Program(tuple(steps), self._scratch), tuple(self._weights), tuple(copies))

    def _placed(self, view: View, homes: dict[int, tuple[str, int]]) -> View:
        if view.kind != _LOOSE:
            return view
        if view.index not in homes:
            homes[view.index] = (SCRATCH, self._scratch)
            self._scratch += _aligned(view.nbytes)
        kind, index = homes[view.index]
        return replace(view, kind=kind, index=index)


def _sizes(shape: Any) -> tuple[int, ...]:
    values = shape.values if hasattr(shape, "values") else shape
    return tuple(int(value) for value in values)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
