"""Random graphs of pools, recurrences and lighter operators that a rewrite may take, by hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np

from collage_evo.testing.generated import Draw
from collage_evo.testing.rewrites.parts import ends, image, resize, weights


def repeated_pixels(d: Draw) -> list[str]:
    return ends(d, [resize(d, image(d, d.between(1, 5), least=2), 2)])


def mean_pools(d: Draw) -> list[str]:
    return ends(d, [d.b.op("GlobalAveragePool", image(d, d.between(1, 9), d.between(1, 3), 1))])


def normalised_rows(d: Draw) -> list[str]:
    channels = d.between(1, 6)
    x = image(d, channels, d.between(1, 3))
    parts = [weights(d, channels), weights(d, channels)]
    return ends(d, [d.b.op("InstanceNormalization", x, *parts, epsilon=d.among(1e-5, 1e-2))])


def gathered_channels(d: Draw) -> list[str]:
    groups, each, sizes = d.between(1, 4), d.between(1, 4), [d.between(1, 6) for _ in range(d.between(1, 2))]
    whole = (d.between(1, 2), groups * each, *sizes)
    y = d.b.op("Reshape", d.b.input("x", whole), d.b.ints(whole[0], groups, each, *sizes))
    perm = d.among([0, 2, 1], [0, 2, 1], [0, 1, 2])
    y = d.b.op("Transpose", y, perm=[*perm, *range(3, 3 + len(sizes))])
    return ends(d, [d.b.op("Reshape", y, d.b.ints(*whole))])


def separated_pools(d: Draw) -> list[str]:
    kernel = [d.among(5, 6, 7, 4), d.among(5, 6, 7, 4)]
    extra: dict[str, Any] = {"ceil_mode": 1} if d.between(0, 4) == 4 else {"dilations": [d.between(1, 2), 1]}
    pads = [d.between(0, size // 2) for size in kernel] * 2
    strides, x = [d.between(1, 3), d.between(1, 3)], image(d, d.between(1, 5), least=13)
    return ends(d, [d.b.op("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads, **extra)])


def blended_pixels(d: Draw) -> list[str]:
    scales = [1, 1, *(d.among(1, 2, 2, 3, 4, 5, 1.5) for _ in range(2))]
    place = d.among("half_pixel", "pytorch_half_pixel", "half_pixel", "align_corners", "asymmetric")
    x, modes = image(d, d.between(1, 5), least=1), {"coordinate_transformation_mode": place}
    return ends(d, [d.b.op("Resize", x, "", d.b.const(np.array(scales, np.float32)), mode="linear", **modes)])


def unrolled_steps(d: Draw) -> list[str]:
    """A recurrence whose weights, first states and outputs vary, and with them what may be left out of it."""
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
