"""Random graphs with convolutions that a rewrite may match, by hypothesis.

Shapes and attributes vary beyond those that the rewrites accept, so that cases to decline occur as well; sizes are
odd as often as even.
"""

from __future__ import annotations

from typing import Any

from collage_evo.testing.generated import Draw
from tests.support.rewrites.parts import conv, ends, image, pads_of


def pooled_convolutions(d: Draw) -> list[str]:
    given, made, axes = d.between(1, 8), d.between(1, 8), d.among(2, 2, 1, 3)
    kernel, x = [d.between(1, 3)] * axes, image(d, given, axes)
    pool: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [d.between(1, 3)] * axes,
        "pads": [d.between(0, kernel[0] - 1)] * 2 * axes,
        "count_include_pad": d.between(0, 1),
        "ceil_mode": d.among(0, 0, 1),
    }
    if d.yes():
        return ends(d, [d.b.op("AveragePool", conv(d, x, given, made, [1] * axes), **pool)])
    return ends(d, [conv(d, d.b.op("AveragePool", x, **pool), given, made, [1] * axes)])


def flat_convolutions(d: Draw) -> list[str]:
    axes, group = d.among(1, 3, 3), d.among(1, 1, 2)
    given, made = group * d.between(1, 4), group * d.between(1, 4)
    kernel = [d.between(1, 3)] if axes == 1 else d.among([3, 1, 1], [1, 1, 1], [1, 3, 3], [1, 1, 3], [1, 3, 1])
    pads = [d.between(0, size - 1) for size in (*kernel, *kernel)]
    strides = [d.between(1, 2) if size > 1 else d.among(1, 1, 1, 2) for size in kernel]
    x = image(d, given, axes, 5)
    dilations = [d.between(1, 2) for _ in kernel]
    return ends(d, [conv(d, x, given, made, kernel, group=group, pads=pads, strides=strides, dilations=dilations)])


def merged_groups(d: Draw) -> list[str]:
    group = d.among(2, 3, 4, 6, 8)
    given, made = group * d.among(1, 2, 4, 5, 8, 16), group * d.between(1, 5)
    kernel = [d.between(1, 3) for _ in range(d.among(2, 2, 1, 3))]
    x = image(d, given, len(kernel))
    return ends(d, [conv(d, x, given, made, kernel, group=group, pads=pads_of(d, kernel))])


def phase_convolutions(d: Draw) -> list[str]:
    given, kernel, stride = d.between(1, 5), [d.between(1, 6), d.between(1, 6)], d.between(1, 4)
    pads = [d.between(0, (size - 1) // 2) for size in kernel] * 2
    extra: dict[str, Any] = {"output_padding": [d.between(0, stride - 1)] * 2} if d.yes() else {}
    x = image(d, given, least=4)
    made = d.among(1, 3, 4, 17)
    return ends(d, [conv(d, x, given, made, kernel, "ConvTranspose", strides=[stride] * 2, pads=pads, **extra)])


def places_as_channels(d: Draw) -> list[str]:
    given, axes = d.between(1, 4), d.among(2, 2, 1, 3)
    kernel, strides = ([d.between(1, most) for _ in range(axes)] for most in (9, 3))
    extra: dict[str, Any] = {"strides": strides, "dilations": [d.among(1, 1, 1, 2)] * axes}
    x = image(d, given, axes, least=9)
    return ends(d, [conv(d, x, given, d.among(1, 1, 2, 3, 8, 17), kernel, pads=pads_of(d, kernel), **extra)])


def pixel_products(d: Draw) -> list[str]:
    given, axes = d.between(1, 9), d.among(2, 2, 1, 3)
    sizes = [d.among(1, 1, 1, 2)] * axes
    x = d.b.input("x", (d.between(1, 3), given, *sizes))
    return ends(d, [conv(d, x, given, d.between(1, 9), [1] * axes, strides=[d.among(1, 1, 2)] * axes)])
