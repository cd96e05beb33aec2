"""Random small models by hypothesis: strategies made of families of operators.

Every model is valid and gives finite numbers; shapes, dtypes and attributes vary, backends need not support them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import weight

T = TypeVar("T")
Family = Callable[["Draw"], Sequence[str] | str]
"""Fills a builder and returns its outputs."""

UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Erf", "HardSwish", "HardSigmoid", "Abs", "Neg", "Exp", "Softplus", "Softsign"),
    *("Floor", "Ceil", "Round", "Sin", "Cos", "Selu", "Sign", "LeakyRelu", "Elu", "Celu", "ThresholdedRelu"),
)
WITH_ALPHA = {"LeakyRelu", "Elu", "Celu", "ThresholdedRelu"}
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
NUMBERS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64)
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


class Draw:
    """A builder together with the choices that fill it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.b = Builder("generated")

    def among(self, *choices: T) -> T:
        return self._draw(st.sampled_from(choices))

    def between(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def yes(self) -> bool:
        return self._draw(st.booleans())

    def shape(self, low: int = 1, high: int = 5, most: int = 9) -> tuple[int, ...]:
        """A shape of ``low`` to ``high`` axes; half of them begin with a batch of one."""
        sizes = [self.between(1, most) for _ in range(self.between(low, high))]
        return tuple([1, *sizes[1:]] if self.yes() else sizes)

    def image(self, channels: int, axes: int = 2, least: int = 5) -> str:
        sizes = [self.between(least, least + 9) for _ in range(axes)]
        return self.b.input("x", (self.among(1, 1, 1, 2), channels, *sizes))


def _conv(d: Draw) -> str:
    axes, group = d.among(2, 2, 2, 1, 3), d.among(1, 1, 1, 2, 4)
    depthwise = group > 1 and d.yes()
    inside, outside = group * (1 if depthwise else d.between(1, 5)), group * d.between(1, 5)
    attributes: dict[str, Any] = {"strides": [d.between(1, 3)] * axes, "dilations": [d.between(1, 2)] * axes}
    if d.yes():
        attributes["pads"] = [d.between(0, 2) for _ in range(2 * axes)]
    elif set(attributes["dilations"]) == {1}:
        attributes["auto_pad"] = d.among("SAME_UPPER", "SAME_LOWER", "VALID")
    kernel = [d.between(1, 3) for _ in range(axes)]
    inputs = [d.image(inside, axes), d.b.const(weight(outside, inside // group, *kernel))]
    if d.yes():
        inputs.append(d.b.const(weight(outside)))
    return _epilogue(d, d.b.op("Conv", *inputs, kernel_shape=kernel, group=group, **attributes))


def _conv_transpose(d: Draw) -> str:
    group, stride = d.among(1, 1, 2), d.between(1, 3)
    inside, kernel = group * d.between(1, 4), [d.between(1, 4) for _ in range(2)]
    pad = d.between(0, min(kernel) - 1)
    x = d.image(inside)
    inputs = [x, d.b.const(weight(inside, d.between(1, 4), *kernel))]
    extra: dict[str, Any] = {"output_padding": [stride - 1] * 2} if d.yes() else {}
    return d.b.op("ConvTranspose", *inputs, group=group, strides=[stride] * 2, pads=[pad] * 4, **extra)


def _epilogue(d: Draw, y: str) -> str:
    """Up to three elementwise operators behind ``y``."""
    for _ in range(d.between(0, 3)):
        kind = d.among("unary", "scalar", "twice")
        if kind == "unary":
            y = d.b.op(d.among("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu"), y)
        elif kind == "scalar":
            y = d.b.op(d.among("Add", "Mul", "Sub"), y, d.b.const(np.float32(0.75)))
        else:
            y = d.b.op("Mul", y, d.b.op("Sigmoid", y))
    return y


def _gemm(d: Draw) -> str:
    rows, inner, columns = (d.among(1, d.between(1, 24)) for _ in range(3))
    across, turned = d.yes(), d.yes()
    x = d.b.input("x", (inner, rows) if across else (rows, inner))
    inputs = [x, d.b.const(weight(columns, inner) if turned else weight(inner, columns))]
    if d.yes():
        inputs.append(d.b.const(weight(*d.among((columns,), (1, columns), (rows, columns), (1,)))))
    scale: dict[str, Any] = {"alpha": d.among(1.0, 0.5), "beta": d.among(1.0, 2.0)}
    return _epilogue(d, d.b.op("Gemm", *inputs, transA=int(across), transB=int(turned), **scale))


def _matmul(d: Draw) -> str:
    batch, (rows, inner, columns) = d.shape(0, 3, 4), (d.between(1, 20) for _ in range(3))
    dtype = d.among(*FLOATS)
    x = d.b.input("x", (*batch, rows, inner), dtype)
    right = (*d.among(batch, (), batch[1:]), inner, columns)
    if dtype == TensorProto.FLOAT and d.yes():
        return _epilogue(d, d.b.op("MatMul", x, d.b.const(weight(*right))))
    return d.b.op("MatMul", x, d.b.input("y", right, dtype))


def _pool(d: Draw) -> str:
    axes = d.among(2, 2, 2, 1, 3)
    kernel = [d.between(1, 3) for _ in range(axes)]
    op = d.among("MaxPool", "AveragePool")
    pads = [d.between(0, size - 1) for size in (*kernel, *kernel)]
    extra: dict[str, Any] = {"count_include_pad": d.between(0, 1)} if op == "AveragePool" else {}
    x = d.image(d.between(1, 9), axes)
    strides = [d.between(1, 3)] * axes
    if d.yes():
        return d.b.op(op, x, kernel_shape=kernel, strides=strides, auto_pad=d.among("SAME_UPPER", "VALID"), **extra)
    return d.b.op(op, x, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=d.between(0, 1), **extra)


def _global_pool(d: Draw) -> str:
    return d.b.op(d.among("GlobalAveragePool", "GlobalMaxPool"), d.image(d.between(1, 9), d.between(1, 3), 1))


def _unary(d: Draw) -> str:
    y = d.b.input("x", d.shape(0, 5), d.among(*FLOATS))
    for _ in range(d.between(1, 4)):
        op = d.among(*UNARY)
        attributes: dict[str, Any] = {"alpha": d.among(0.25, 1.5)} if op in WITH_ALPHA else {}
        y = d.b.op(op, y, **attributes)
    return y


def _binary(d: Draw) -> str:
    """Broadcasting in both directions, with constants on either side."""
    shape = d.shape(1, 5, 6)
    op = d.among(*BINARY)
    other = tuple(1 if d.among(True, False, False) else size for size in shape)[d.between(0, len(shape) - 1) :]
    if op == "Div":
        return d.b.op(op, d.b.input("x", shape), d.b.const(np.abs(weight(*other)) + np.float32(0.5)))
    dtype = TensorProto.FLOAT if op == "PRelu" else d.among(*NUMBERS)
    if dtype == TensorProto.FLOAT and d.yes():
        sides = [d.b.input("x", shape), d.b.const(weight(*other))]
    else:
        sides = [d.b.input("x", shape, dtype), d.b.input("y", other, dtype)]
    return d.b.op(op, *(sides if op == "PRelu" or d.yes() else sides[::-1]))


def _reduction(d: Draw) -> str:
    shape = d.shape(1, 5, 6)
    axes = sorted({d.between(0, len(shape) - 1) for _ in range(d.between(1, 3))})
    signed = [axis - len(shape) * d.between(0, 1) for axis in axes]
    x = d.b.input("x", shape)
    return d.b.op(d.among(*REDUCTIONS), x, d.b.ints(*signed), keepdims=d.between(0, 1))


def _axis(d: Draw) -> str:
    shape = d.shape(1, 5)
    axis = d.between(-len(shape), len(shape) - 1)
    x = d.b.input("x", shape, d.among(*FLOATS))
    return d.b.op(d.among("Softmax", "LogSoftmax"), x, axis=axis)


def _normalisation(d: Draw) -> str:
    shape = d.shape(2, 4)
    x = d.b.input("x", shape)
    if d.yes():
        size = shape[-1]
        return d.b.op("LayerNormalization", x, d.b.const(weight(size)), d.b.const(weight(size)), axis=-1)
    parts = [weight(shape[1]), weight(shape[1]), weight(shape[1]), weight(shape[1], low=0.5)]
    return d.b.op("BatchNormalization", x, *map(d.b.const, parts), epsilon=d.among(1e-5, 1e-2))


def _movement(d: Draw) -> Sequence[str] | str:
    """Operators that move elements and compute nothing."""
    shape = d.shape(2, 5, 6)
    axis = d.between(-len(shape), len(shape) - 1)
    size = shape[axis]
    x = d.b.input("x", shape, d.among(*NUMBERS, TensorProto.FLOAT, TensorProto.BOOL))
    kind = d.among("Transpose", "Concat", "Slice", "Split", "Flatten", "Reshape", "Unsqueeze", "Gather")
    if kind == "Transpose":
        return d.b.op(kind, x, perm=d.among(*(np.roll(range(len(shape)), k).tolist() for k in range(len(shape)))))
    if kind == "Concat":
        return d.b.op(kind, x, x, axis=axis)
    if kind == "Slice":
        step = d.among(1, 1, 2, -1)
        ends = (size, -(2**31)) if step < 0 else (0, size)
        return d.b.op(kind, x, d.b.ints(ends[0]), d.b.ints(ends[1]), d.b.ints(axis), d.b.ints(step))
    if kind == "Split":
        if size == 1:
            return d.b.ops(kind, x, d.b.ints(1), outputs=1, axis=axis)
        return d.b.ops(kind, x, d.b.ints(1, size - 1), outputs=2, axis=axis)
    if kind == "Flatten":
        return d.b.op(kind, x, axis=axis)
    if kind == "Reshape":
        return d.b.op(kind, x, d.b.ints(*d.among((-1,), (1, -1), (0, -1), (-1, 1))))
    if kind == "Unsqueeze":
        return d.b.op(kind, x, d.b.ints(d.between(0, len(shape))))
    return d.b.op(kind, x, d.b.ints(*(d.between(-size, size - 1) for _ in range(3))), axis=axis)


def _comparison(d: Draw) -> str:
    shape = d.shape(1, 4)
    x, y = d.b.input("x", shape), d.b.input("y", shape)
    mask = d.b.op(d.among("Greater", "Less", "GreaterOrEqual", "LessOrEqual"), x, y)
    if d.yes():
        return d.b.op("Where", mask, x, d.b.const(np.float32(-2)))
    return d.b.op("Cast", mask, to=d.among(TensorProto.FLOAT, TensorProto.INT32)) if d.yes() else mask


def _wiring(d: Draw) -> Sequence[str]:
    """Elementwise operators wired at random: chains, diamonds, values that leave in the middle."""
    shape = d.shape(2, 4)
    values = [d.b.input("x", shape), d.b.input("y", shape)]
    made: list[str] = []
    for _ in range(d.between(2, 7)):
        op = d.among("Relu", "Sigmoid", "Tanh", "Add", "Mul", "Sub")
        recent = [d.among(*values[-3:]) for _ in range(2 if op in BINARY else 1)]
        made.append(d.b.op(op, *recent))
        # Bounded, so that products of products stay small.
        values.append(d.b.op("Tanh", made[-1]) if op == "Mul" else made[-1])
    outputs = [values[-1]]
    if d.yes() and made[0] not in outputs:
        outputs.append(made[0])
    return outputs


FAMILIES: dict[str, Family] = {
    "convolution": _conv,
    "transposed convolution": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "pool": _pool,
    "global pool": _global_pool,
    "unary": _unary,
    "binary": _binary,
    "reduction": _reduction,
    "softmax": _axis,
    "normalisation": _normalisation,
    "movement": _movement,
    "comparison": _comparison,
    "wiring": _wiring,
}


def models(family: Family) -> st.SearchStrategy[onnx.ModelProto]:
    """Models that ``family`` fills, as one of :data:`FAMILIES`."""

    @st.composite
    def drawn(draw: st.DrawFn) -> onnx.ModelProto:
        d = Draw(draw)
        outputs = family(d)
        return d.b.model(*([outputs] if isinstance(outputs, str) else outputs))

    return drawn()
