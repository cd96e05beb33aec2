"""Random graphs of pools, recurrences and lighter operators that a rewrite may match, by hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from collage_evo.testing.generated import Draw
from tests.support.rewrites.parts import ends, weights


def tabled_indices(d: Draw) -> list[str]:
    """An embedding or a one-hot row, then a product and operators by row, and others that are not."""
    rows, width, made, shape = d.between(2, 6), d.between(2, 5), d.between(1, 5), (d.between(1, 2), d.between(2, 6))
    kind = d.among("compared", "one hot", "gathered")
    # ONNX Runtime has no OneHot of 32-bit indices and a 64-bit depth.
    dtype = TensorProto.INT64 if kind == "one hot" else d.among(TensorProto.INT32, TensorProto.INT64)
    index = d.b.input("x", shape, dtype)
    if kind == "gathered":
        y = d.b.op("Gather", weights(d, rows, width), index)
    elif kind == "one hot":
        width, values = rows, d.b.const(np.array([d.among(0, 0.5), 1], np.float32))
        y = d.b.op("OneHot", index, d.b.ints(rows), values)
    else:
        width, apart = rows, d.b.op("Unsqueeze", d.b.op("Cast", index, to=TensorProto.INT32), d.b.ints(2))
        numbers = d.b.const(np.arange(rows, dtype=np.int32).reshape(d.among((rows,), (1, 1, rows))) - d.between(0, 2))
        y = d.b.op("Cast", d.b.op("Equal", *d.among((apart, numbers), (numbers, apart))), to=TensorProto.FLOAT)
    y = d.b.op("MatMul", y, weights(d, width, made))
    if d.yes():
        y = d.b.op("Mul", d.b.op("Tanh", y), d.b.op("Add", y, weights(d, *d.among((made,), (1, 1, made)))))
    return ends(d, [d.b.op("Mul", y, weights(d, shape[1], 1)) if d.yes() else y])


def convolved_rows(d: Draw) -> list[str]:
    """Rows times weights, and operators behind them of which some apply to the numbers of a row and some do not."""
    before = d.among((19,), (2, 9), (1, 17), (17, 1), (2, 3, 3), (1, 4, 5), (1, 2, 2, 5))
    width, made, gemm = d.between(1, 5), d.between(1, 4), len(before) == 1 and d.yes()
    x = d.b.input("x", (*before, width))
    if gemm:
        bias = [weights(d, *d.among((made,), (1, made), (1,), (19, 1)))] if d.yes() else []
        attributes: dict[str, Any] = {"alpha": d.among(1.0, 0.5), "beta": d.among(1.0, 2.0)}
        attributes["transB"] = d.between(0, 1)
        shape = (made, width) if attributes["transB"] else (width, made)
        y = d.b.op("Gemm", x, weights(d, *shape), *bias, **attributes)
    else:
        y = d.b.op("MatMul", x, weights(d, width, made))
    if d.yes():
        parts = [y, weights(d, *d.among((made,), (1, made), (1,), (before[-1], 1)))]
        y = d.b.op("Add", *d.among(parts, parts[::-1]))
    behind = d.among("", "Gelu", "Hardswish", "Mul", "LeakyRelu", "PRelu", "Clip")
    if behind == "Gelu":
        cut = d.b.op("Div", y, d.b.const(np.array([2**0.5], np.float32)))
        y = d.b.op("Mul", y, d.b.op("Add", d.b.op("Erf", cut), d.b.const(np.float32(1))))
    elif behind == "Hardswish":
        above = d.b.op("Add", y, d.b.const(np.float32(3)))
        y = d.b.op("Mul", y, d.b.op("Clip", above, d.b.const(np.float32(0)), d.b.const(np.float32(6))))
    elif behind == "Mul":
        y = d.b.op("Mul", d.b.op("Sigmoid", y), d.b.op("Add", y, y))
    elif behind:
        others = {"PRelu": [weights(d, made)], "Clip": ["", d.b.const(np.float32(0.5))]}
        y = d.b.op(behind, y, *others.get(behind, []))
    return ends(d, [y])


def joined_products(d: Draw) -> list[str]:
    """An unrolled recurrence: products of each step's row by the same weights, and of the previous state by
    others."""
    steps, width, made, gemm = d.between(2, 4), d.between(1, 5), d.between(1, 4), d.yes()
    x, before = d.b.input("x", (steps, d.between(1, 2), width)), ""
    own, inner = weights(d, width, made), weights(d, made, made)
    bias = [weights(d, *d.among((made,), (1, made)))] if d.yes() else []
    states = []
    for step in range(steps):
        y = d.b.op("Gather", x, d.b.const(np.array(step if gemm else [step], np.int64)))
        y = d.b.op("Gemm", y, own, *bias, alpha=d.among(1.0, 1.0, 0.5)) if gemm else d.b.op("MatMul", y, own)
        before = d.b.op("Tanh", d.b.op("Add", y, d.b.op("MatMul", before, inner)) if before else y)
        states.append(before)
    return ends(d, states)


def turned_factors(d: Draw) -> list[str]:
    """Queries and keys, brought to heads and the keys turned, scaled or not, and their product."""
    batch, rows, heads, width = d.between(1, 2), d.between(2, 5), d.between(1, 3), d.between(1, 4)
    sizes = {"x": rows, "y": rows + d.between(0, 2)}
    x, y = (d.b.input(name, (batch, size, heads, width)) for name, size in sizes.items())
    before = d.among([0, 2], [2, 0])
    queries, keys = (d.b.op("Transpose", z, perm=[*before, *behind]) for z, behind in ((x, [1, 3]), (y, [3, 1])))
    scale = d.b.const(np.full(d.among((), (1,), (width, 1)), 0.5, np.float32))
    if d.yes():
        keys = d.b.op(d.among("Mul", "Div"), keys, scale)
    return ends(d, [d.b.op("MatMul", queries, keys), *([keys] if d.between(0, 5) == 5 else [])])


def interleaved_parts(d: Draw) -> list[str]:
    """Parts that are joined along their last axis of more than one element, perhaps cut and transposed behind it."""
    before, ones = (d.between(1, 2), 32, d.between(32, 35)), [1] * d.between(1, 2)
    x = d.b.input("x", (*before, *ones))
    parts = [d.b.op("Mul", x, weights(d, 1)) for _ in range(d.between(2, 4))]
    y = d.b.op("Concat", *parts, axis=d.among(3, -len(ones)))
    if d.yes():
        one_axis, other_axis = ([3], [30], [-2 - len(ones)]), ([0], [1], [3])
        cut = d.among(one_axis, other_axis, ([1, 2], [31, 99], [1, 2]), ([0, 1], [99, 32], [3, 1]))
        steps = [d.b.ints(*[1] * len(cut[0]))] if d.yes() else []
        y = d.b.op("Slice", y, *(d.b.ints(*values) for values in cut), *steps)
    if d.yes():
        rank = 3 + len(ones)
        perm = d.among((0, 3, 1, 2), (3, 2, 0, 1), (1, 2, 3, 0), (0, 1, 2, 3))
        y = d.b.op("Transpose", y, perm=[*perm, *range(4, rank)] if d.yes() else [rank - 1, *perm][-rank:])
    return ends(d, [y])


def unrolled_steps(d: Draw) -> list[str]:
    """A recurrence whose weights, first states and outputs vary, and with them its optional inputs."""
    op_type, gates = d.among(("GRU", 3), ("LSTM", 4), ("RNN", 1))
    direction, states = d.among("forward", "reverse", "bidirectional"), 2 if op_type == "LSTM" else 1
    count, batch, width, size = 1 + (direction == "bidirectional"), d.between(1, 3), d.between(1, 5), d.between(1, 5)
    rows, x = gates * size, d.b.input("x", (d.between(1, 4), batch, width))
    inputs = [x, weights(d, count, rows, width), weights(d, count, rows, size)]
    inputs += [weights(d, count, 2 * rows) if d.yes() else "", ""]
    for place in range(states):
        shape = (count, batch, size)
        inputs.append(d.among("", weights(d, *shape), d.b.const(np.zeros(shape, np.float32)), f"state{place}"))
        if inputs[-1] == f"state{place}":
            d.b.input(inputs[-1], shape)
    extra: dict[str, Any] = {"linear_before_reset": d.between(0, 1)} if op_type == "GRU" else {}
    made = d.b.ops(op_type, *inputs, outputs=1 + states, hidden_size=size, direction=direction, **extra)
    return ends(d, [made[place] for place in d.among([0], range(1 + states), [states])])
