"""Random graphs on which a rewrite may apply, by hypothesis: takes a rewrite's name, gives a strategy of models.

Shapes and attributes vary beyond what the rewrite takes, so that what it should decline comes up as well; sizes are
odd as often as even. Many of the graphs go on behind the site, so that it lies inside a larger region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

from collage_evo.testing.cases.case import weight
from collage_evo.testing.generated import Draw, Family


def _conv(d: Draw, x: str, given: int, made: int, kernel: Sequence[int], op: str = "Conv", **attributes: Any) -> str:
    group = attributes.get("group", 1)
    shape = (given, made // group) if op == "ConvTranspose" else (made, given // group)
    inputs = [x, d.b.const(weight(*shape, *kernel))]
    if d.yes():
        inputs.append(d.b.const(weight(made)))
    return d.b.op(op, *inputs, kernel_shape=list(kernel), **attributes)


def _image(d: Draw, channels: int, axes: int = 2, least: int = 3) -> str:
    return d.b.input("x", (d.among(1, 1, 2), channels, *(d.between(least, least + 6) for _ in range(axes))))


def _ends(d: Draw, made: Sequence[str]) -> list[str]:
    """What leaves: ``made``, or more operators behind it."""
    kind = d.among("as made", "activated", "read twice")
    if kind == "as made":
        return list(made)
    behind = [d.b.op("Sigmoid", name) for name in made]
    return behind if kind == "activated" else [*behind, *made[:1]]


def _pads(d: Draw, kernel: Sequence[int]) -> list[int]:
    return [d.between(0, max(size - 1, 0)) for size in (*kernel, *kernel)]


def _joined_convolutions(d: Draw) -> list[str]:
    given, activation = d.between(1, 6), d.among("", "Relu", "Sigmoid")
    x, stride = _image(d, given), d.between(1, 2)
    sides = [_conv(d, x, given, d.between(1, 5), (1, 1), strides=[stride] * 2) for _ in range(d.between(2, 4))]
    return _ends(d, [d.b.op(activation, side) if activation else side for side in sides])


def _joined_products(d: Draw) -> list[str]:
    width = d.between(1, 9)
    x = d.b.input("x", (*(d.between(1, 4) for _ in range(d.between(1, 3))), width))
    made = []
    for place in range(d.between(2, 4)):
        columns = d.between(1, 7)
        y = d.b.op("MatMul", x, d.b.const(weight(width, columns) + np.float32(place)))
        bias = [y, d.b.const(weight(*d.among((columns,), (columns,), (1,))))]
        made.append(d.b.op("Add", *(bias if d.yes() else bias[::-1])) if d.yes() else y)
    return _ends(d, made)


def _pooled_convolutions(d: Draw) -> list[str]:
    given, made, axes = d.between(1, 8), d.between(1, 8), d.among(2, 2, 1, 3)
    kernel, x = [d.between(1, 3)] * axes, _image(d, given, axes)
    pool: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [d.between(1, 3)] * axes,
        "pads": [d.between(0, kernel[0] - 1)] * 2 * axes,
        "count_include_pad": d.between(0, 1),
        "ceil_mode": d.among(0, 0, 1),
    }
    if d.yes():
        return _ends(d, [d.b.op("AveragePool", _conv(d, x, given, made, [1] * axes), **pool)])
    return _ends(d, [_conv(d, d.b.op("AveragePool", x, **pool), given, made, [1] * axes)])


def _resize(d: Draw, x: str, axes: int) -> str:
    if d.yes():
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        modes = {"nearest_mode": d.among("round_prefer_floor", "round_prefer_ceil", "ceil")}
        modes["coordinate_transformation_mode"] = d.among("half_pixel", "pytorch_half_pixel")
    scales = [1, 1, *(d.among(1, 2, 2, 3, 4, 1.5) for _ in range(axes))]
    return d.b.op("Resize", x, "", d.b.const(np.array(scales, np.float32)), mode="nearest", **modes)


def _repeated_pixels(d: Draw) -> list[str]:
    return _ends(d, [_resize(d, _image(d, d.between(1, 5), least=2), 2)])


def _resized_convolutions(d: Draw) -> list[str]:
    given, axes = d.between(1, 5), d.among(2, 2, 2, 1, 3)
    kernel = [d.between(1, 5) for _ in range(axes)]
    y = _resize(d, _image(d, given, axes, least=5), axes)
    strides = [d.among(1, 1, 1, 2)] * axes
    return _ends(d, [_conv(d, y, given, d.between(1, 5), kernel, pads=_pads(d, kernel), strides=strides)])


def _partial_convolutions(d: Draw) -> list[str]:
    sizes, shared = [d.between(3, 8) for _ in range(2)], d.between(1, 2)
    parts = [d.between(1, 5) for _ in range(d.between(2, 5))]
    xs = [d.b.input(f"x{place}", (shared, part, *sizes)) for place, part in enumerate(parts)]
    kernel, y = [d.between(1, 3) for _ in range(2)], d.b.op("Concat", *xs, axis=d.among(1, -3))
    extra: dict[str, Any] = {"strides": [d.between(1, 2)] * 2, "dilations": [d.among(1, 1, 2)] * 2, "pads": [2, 2, 2, 2]}
    return _ends(d, [_conv(d, y, sum(parts), d.between(1, 6), kernel, **extra)])


def _flat_convolutions(d: Draw) -> list[str]:
    axes, group = d.among(1, 3, 3), d.among(1, 1, 2)
    given, made = group * d.between(1, 4), group * d.between(1, 4)
    kernel = [d.between(1, 3)] if axes == 1 else d.among([3, 1, 1], [1, 1, 1], [1, 3, 3], [1, 1, 3], [1, 3, 1])
    pads = [d.between(0, size - 1) for size in (*kernel, *kernel)]
    strides = [d.between(1, 2) if size > 1 else d.among(1, 1, 1, 2) for size in kernel]
    x = _image(d, given, axes, 5)
    dilations = [d.between(1, 2) for _ in kernel]
    return _ends(d, [_conv(d, x, given, made, kernel, group=group, pads=pads, strides=strides, dilations=dilations)])


def _stacked_frames(d: Draw) -> list[str]:
    given, kernel = d.between(1, 4), [d.between(2, 3), d.between(1, 3), d.between(1, 3)]
    apart = d.between(1, 2)
    extra: dict[str, Any] = {"strides": [d.among(1, 1, 2), apart, apart], "dilations": [1, *[d.between(1, 2)] * 2]}
    x = _image(d, given, 3, 5)
    return _ends(d, [_conv(d, x, given, d.between(1, 5), kernel, pads=_pads(d, kernel), **extra)])


def _merged_groups(d: Draw) -> list[str]:
    group = d.among(2, 3, 4, 6, 8)
    given, made = group * d.among(1, 2, 4, 5, 8, 16), group * d.between(1, 5)
    kernel = [d.between(1, 3) for _ in range(d.among(2, 2, 1, 3))]
    x = _image(d, given, len(kernel))
    return _ends(d, [_conv(d, x, given, made, kernel, group=group, pads=_pads(d, kernel))])


def _mean_pools(d: Draw) -> list[str]:
    return _ends(d, [d.b.op("GlobalAveragePool", _image(d, d.between(1, 9), d.between(1, 3), 1))])


def _normalised_rows(d: Draw) -> list[str]:
    channels = d.between(1, 6)
    x = _image(d, channels, d.between(1, 3))
    parts = [d.b.const(weight(channels)), d.b.const(weight(channels))]
    return _ends(d, [d.b.op("InstanceNormalization", x, *parts, epsilon=d.among(1e-5, 1e-2))])


def _gathered_channels(d: Draw) -> list[str]:
    groups, each, sizes = d.between(1, 4), d.between(1, 4), [d.between(1, 6) for _ in range(d.between(1, 2))]
    whole = (d.between(1, 2), groups * each, *sizes)
    y = d.b.op("Reshape", d.b.input("x", whole), d.b.ints(whole[0], groups, each, *sizes))
    perm = d.among([0, 2, 1], [0, 2, 1], [0, 1, 2])
    y = d.b.op("Transpose", y, perm=[*perm, *range(3, 3 + len(sizes))])
    return _ends(d, [d.b.op("Reshape", y, d.b.ints(*whole))])


def _phase_convolutions(d: Draw) -> list[str]:
    given, kernel, stride = d.between(1, 5), [d.between(1, 6), d.between(1, 6)], d.between(1, 4)
    pads = [d.between(0, (size - 1) // 2) for size in kernel] * 2
    extra: dict[str, Any] = {"output_padding": [d.between(0, stride - 1)] * 2} if d.yes() else {}
    x = _image(d, given, least=4)
    made = d.among(1, 3, 4, 17)
    return _ends(d, [_conv(d, x, given, made, kernel, "ConvTranspose", strides=[stride] * 2, pads=pads, **extra)])


def _patch_products(d: Draw) -> list[str]:
    edge, given = d.between(1, 4), d.between(1, 4)
    x = d.b.input("x", (d.between(1, 2), given, edge * d.between(1, 4) + d.among(0, 0, 1), edge * d.between(1, 4)))
    return _ends(d, [_conv(d, x, given, d.between(1, 6), (edge, edge), strides=[d.among(edge, edge, 1)] * 2)])


def _pointwise_products(d: Draw) -> list[str]:
    given, axes = d.between(1, 9), d.among(2, 2, 1, 3)
    sizes = [1] * axes if d.yes() else [d.between(1, 6) for _ in range(axes)]
    x = d.b.input("x", (d.between(1, 3), given, *sizes))
    return _ends(d, [_conv(d, x, given, d.between(1, 9), [1] * axes, strides=[d.among(1, 1, 2)] * axes)])


def _separated_pools(d: Draw) -> list[str]:
    kernel = [d.between(4, 7), d.between(4, 7)]
    extra: dict[str, Any] = {"ceil_mode": 1} if d.between(0, 4) == 0 else {"dilations": [d.between(1, 2), 1]}
    pads = [d.between(0, size // 2) for size in kernel] * 2
    strides, x = [d.between(1, 3), d.between(1, 3)], _image(d, d.between(1, 5), least=13)
    return _ends(d, [d.b.op("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads, **extra)])


def _blended_pixels(d: Draw) -> list[str]:
    scales = [1, 1, *(d.among(1, 2, 2, 3, 4, 5, 1.5) for _ in range(2))]
    place = d.among("half_pixel", "pytorch_half_pixel", "half_pixel", "align_corners", "asymmetric")
    x, modes = _image(d, d.between(1, 5), least=1), {"coordinate_transformation_mode": place}
    return _ends(d, [d.b.op("Resize", x, "", d.b.const(np.array(scales, np.float32)), mode="linear", **modes)])


REWRITABLE: dict[str, Family] = {
    "blended-pixels": _blended_pixels,
    "flat-convolutions": _flat_convolutions,
    "gathered-channels": _gathered_channels,
    "joined-convolutions": _joined_convolutions,
    "joined-products": _joined_products,
    "mean-pools": _mean_pools,
    "merged-groups": _merged_groups,
    "normalised-rows": _normalised_rows,
    "partial-convolutions": _partial_convolutions,
    "patch-products": _patch_products,
    "phase-convolutions": _phase_convolutions,
    "pointwise-products": _pointwise_products,
    "pooled-convolutions": _pooled_convolutions,
    "repeated-pixels": _repeated_pixels,
    "resized-convolutions": _resized_convolutions,
    "separated-pools": _separated_pools,
    "stacked-frames": _stacked_frames,
}
"""By the name of the rewrite that may apply."""


def rewritable(name: str) -> st.SearchStrategy[onnx.ModelProto]:
    """Models on which the rewrite ``name`` applies more often than not."""

    @st.composite
    def drawn(draw: st.DrawFn) -> onnx.ModelProto:
        d = Draw(draw)
        outputs = REWRITABLE[name](d)
        return d.b.model(*([outputs] if isinstance(outputs, str) else outputs))

    return drawn()
