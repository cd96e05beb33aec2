"""Parts of random graphs for rewrites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collage_evo.testing.generated import Draw


def weights(d: Draw, *shape: int) -> str:
    """Random constants, different each time: equal ones would hide that two were exchanged."""
    numbers = np.random.default_rng(d.between(0, 2**31)).standard_normal(shape)
    return d.b.const((numbers / math.sqrt(math.prod(shape[1:]))).astype(np.float32))


def conv(d: Draw, x: str, given: int, made: int, kernel: Sequence[int], op: str = "Conv", **attributes: Any) -> str:
    """A convolution, transposed or not, with or without bias."""
    group = attributes.get("group", 1)
    shape = (given, made // group) if op == "ConvTranspose" else (made, given // group)
    inputs = [x, weights(d, *shape, *kernel)]
    if d.yes():
        inputs.append(weights(d, made))
    return d.b.op(op, *inputs, kernel_shape=list(kernel), **attributes)


def image(d: Draw, channels: int, axes: int = 2, least: int = 3) -> str:
    """An input of one or two samples."""
    return d.b.input("x", (d.among(1, 1, 2), channels, *(d.between(least, least + 6) for _ in range(axes))))


def ends(d: Draw, made: Sequence[str]) -> list[str]:
    """The outputs: ``made``, or more operators behind it."""
    kind = d.among("as made", "activated", "read twice")
    if kind == "as made":
        return list(made)
    behind = [d.b.op("Sigmoid", name) for name in made]
    return behind if kind == "activated" else [*behind, *made[:1]]


def pads_of(d: Draw, kernel: Sequence[int]) -> list[int]:
    """Pads smaller than the kernel."""
    return [d.between(0, max(size - 1, 0)) for size in (*kernel, *kernel)]
