"""Convolutions in other forms: joined, split, exchanged with pools, of fewer dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collage_evo.models.builder import Builder
from rewrite_forms.form import ORIGINAL, candidate, conv, cut, random, reshape

_INCEPTION = {
    "Inception v1 3a 192x28x28": (192, 28, (64, 96, 16)),
    "Inception v1 4c 512x14x14": (512, 14, (128, 128, 24)),
    "Inception v1 5b 832x7x7": (832, 7, (384, 192, 48)),
    "Inception v3 6b 768x17x17": (768, 17, (192, 128, 128)),
    "Inception v3 7c 2048x8x8": (2048, 8, (320, 384, 448)),
}


@candidate(("joined-convolutions",), _INCEPTION)
def joined_convolutions(b: Builder, form: str, channels: int, size: int, sides: Sequence[int]) -> Sequence[str]:
    """1x1 convolutions with their Relus that share an input."""
    x = b.input("x", (1, channels, size, size))
    kernels = [random(side, channels, 1, 1) for side in sides]
    biases = [random(side) for side in sides]
    return [b.op("Relu", conv(b, x, w, bias)) for w, bias in zip(kernels, biases, strict=True)]


@candidate(("joined",), {"SqueezeNet fire2 16x55x55": (16, 64, 55), "SqueezeNet fire9 64x13x13": (64, 256, 13)})
def expanded_convolutions(b: Builder, form: str, channels: int, wide: int, size: int) -> str:
    """A 1x1 and a 3x3 convolution, concatenated: one 3x3."""
    x = b.input("x", (1, channels, size, size))
    one, three, bias = random(wide, channels, 1, 1), random(wide, channels, 3, 3), random(wide)
    if form == ORIGINAL:
        sides = [conv(b, x, one, bias), conv(b, x, three, bias, pads=[1] * 4)]
        return b.op("Concat", *(b.op("Relu", side) for side in sides), axis=1)
    w = np.concatenate([np.pad(one, [(0, 0), (0, 0), (1, 1), (1, 1)]), three])
    return b.op("Relu", conv(b, x, w, np.concatenate([bias, bias]), pads=[1] * 4))


@candidate(
    ("pooled-convolutions",),
    {
        "DenseNet-121 transition 1 256x56x56": (256, 128, 56, 2, 2, 0),
        "DenseNet-121 transition 2 512x28x28": (512, 256, 28, 2, 2, 0),
        "DenseNet-121 transition 3 1024x14x14": (1024, 512, 14, 2, 2, 0),
    },
)
def pool_after_convolution(
    b: Builder, form: str, c: int, o: int, size: int, kernel: int, stride: int, pad: int
) -> str:
    """An average pool behind a 1x1 convolution stands before it instead."""
    x, w = b.input("x", (1, c, size, size)), random(o, c, 1, 1)
    pool: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return b.op("AveragePool", conv(b, x, w), **pool)


@candidate(
    ("pooled-convolutions",),
    {
        "Inception v3 5b 192x35x35": (192, 32, 35),
        "Inception v3 6b 768x17x17": (768, 192, 17),
        "Inception v3 7c 2048x8x8": (2048, 192, 8),
    },
)
def pool_before_convolution(b: Builder, form: str, c: int, o: int, size: int) -> str:
    """An average pool of stride 1 before a 1x1 convolution stands behind it instead, on fewer channels."""
    x, w, bias = b.input("x", (1, c, size, size)), random(o, c, 1, 1), random(o)
    pool: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}
    return b.op("Relu", conv(b, b.op("AveragePool", x, **pool), w, bias))


_DENSE = {
    "DenseNet-121 2.1 64+2x32 56x56": ((64, 32, 32), 128, 1, 56),
    "DenseNet-121 3.6 128+6x32 28x28": ((128, *[32] * 6), 128, 1, 28),
    "SqueezeNet fire3 64+64 55x55": ((64, 64), 16, 1, 55),
    "U-Net 128+128 64x64, 3x3": ((128, 128), 128, 3, 64),
}


@candidate(("partial-convolutions",), _DENSE)
def convolution_of_concat(b: Builder, form: str, parts: Sequence[int], o: int, kernel: int, size: int) -> str:
    """Concat and convolution as a sum of partial convolutions."""
    xs = [b.input(f"x{k}", (1, part, size, size)) for k, part in enumerate(parts)]
    w, bias, pads = random(o, sum(parts), kernel, kernel), random(o), [kernel // 2] * 4
    return conv(b, b.op("Concat", *xs, axis=1), w, bias, pads=pads)


@candidate(
    ("merged-groups", "products"),
    {
        "ResNeXt-50 128x56x56": (128, 32, 56, 1),
        "ResNeXt-50 256x28x28": (256, 32, 28, 1),
        "RegNetY-1.6GF 48 of 24 56x56": (48, 6, 56, 1),
        "ResNeXt-101 64x4d 256x56x56": (256, 64, 56, 1),
    },
)
def grouped_convolution(b: Builder, form: str, c: int, groups: int, size: int, pad: int) -> str:
    """A grouped 3x3 convolution with fewer, wider groups, or as im2col and batched products."""
    x, w, bias = b.input("x", (1, c, size, size)), random(c, c // groups, 3, 3), random(c)
    if form == ORIGINAL:
        return conv(b, x, w, bias, group=groups, pads=[pad] * 4)
    taps = shifted(b, x, c, size, groups)
    y = b.op("MatMul", b.const(w.transpose(0, 2, 3, 1).reshape(1, groups, c // groups, -1)), taps)
    return b.op("Add", reshape(b, y, 1, c, size, size), b.const(bias.reshape(1, c, 1, 1)))


def shifted(b: Builder, x: str, c: int, size: int, groups: int) -> str:
    """(1, groups, 9 taps x channels of a group, pixels): im2col of a 3x3 kernel with pads of 1."""
    padded = b.op("Pad", x, b.ints(0, 0, 1, 1, 0, 0, 1, 1))
    taps = [
        reshape(b, cut(b, padded, (i, j), (i + size, j + size), (2, 3), (1, 1)), 1, groups, c // groups, size * size)
        for i in range(3)
        for j in range(3)
    ]
    return b.op("Concat", *taps, axis=2)


@candidate(
    ("pointwise-products",),
    {
        "ResNet-50 256x56x56 to 64": (256, 64, 56),
        "ResNet-50 2048x7x7 to 512": (2048, 512, 7),
        "MobileNet v2 576x14x14 to 96": (576, 96, 14),
        "EfficientNet squeeze 672x1x1 to 28": (672, 28, 1),
        "EfficientNet excite 28x1x1 to 672": (28, 672, 1),
        "MobileNet v3 head 960x1x1 to 1280": (960, 1280, 1),
    },
)
def pointwise_convolution(b: Builder, form: str, c: int, o: int, size: int) -> str:
    """A 1x1 convolution as a product, of one pixel as Gemm."""
    return conv(b, b.input("x", (1, c, size, size)), random(o, c, 1, 1), random(o))


@candidate(
    ("sliced",),
    {
        "ResNet-50 shortcut 256x56x56 to 512": (256, 512, 56),
        "ResNet-50 shortcut 1024x14x14 to 2048": (1024, 2048, 14),
    },
)
def strided_pointwise(b: Builder, form: str, c: int, o: int, size: int) -> str:
    """A 1x1 convolution of stride 2 as a Slice and one of stride 1."""
    x, w, bias = b.input("x", (1, c, size, size)), random(o, c, 1, 1), random(o)
    if form == ORIGINAL:
        return conv(b, x, w, bias, strides=[2, 2])
    return conv(b, cut(b, x, (0, 0), (size, size), (2, 3), (2, 2)), w, bias)


@candidate(
    ("stacked-frames", "shifted"),
    {
        "3D-ResNet-18 64x16x56x56": (64, 64, 16, 56),
        "3D-ResNet-18 128x8x28x28": (128, 128, 8, 28),
        "3D-ResNet-18 256x4x14x14": (256, 256, 4, 14),
    },
)
def volume_convolution(b: Builder, form: str, c: int, o: int, depth: int, size: int) -> str:
    """A 3x3x3 convolution of stride 1 as 2-D ones on stacked frames, or with sums of shifted frames."""
    x, w, bias = b.input("x", (1, c, depth, size, size)), random(o, c, 3, 3, 3), random(o)
    if form == ORIGINAL:
        return conv(b, x, w, bias, pads=[1] * 6)
    y = b.op("Transpose", reshape(b, x, c, depth, size, size), perm=[1, 0, 2, 3])
    kernel = w.transpose(2, 0, 1, 3, 4).reshape(3 * o, c, 3, 3)
    y = conv(b, y, kernel, np.concatenate([0 * bias, bias, 0 * bias]), pads=[1] * 4)
    before, here, after = b.ops("Split", y, b.ints(o, o, o), outputs=3, axis=1)
    before = b.op("Pad", cut(b, before, (0,), (depth - 1,), (0,), (1,)), b.ints(1, 0, 0, 0, 0, 0, 0, 0))
    after = b.op("Pad", cut(b, after, (1,), (depth,), (0,), (1,)), b.ints(0, 0, 0, 0, 1, 0, 0, 0))
    y = b.op("Add", b.op("Add", before, here), after)
    return reshape(b, b.op("Transpose", y, perm=[1, 0, 2, 3]), 1, o, depth, size, size)


@candidate(
    ("flat-convolutions",),
    {
        "R(2+1)D 144x8x28x28, 3x1x1": (144, 128, 8, 28, (3, 1, 1)),
        "R(2+1)D 230x8x28x28, 3x1x1": (230, 128, 4, 14, (3, 1, 1)),
        "3D-ResNet-50 256x8x28x28, 1x1x1": (256, 64, 8, 28, (1, 1, 1)),
        "R(2+1)D 64x8x56x56, 1x3x3": (64, 144, 8, 56, (1, 3, 3)),
    },
)
def flat_volume_convolution(
    b: Builder, form: str, c: int, o: int, depth: int, size: int, kernel: tuple[int, int, int]
) -> str:
    """A 3-D convolution that is 1 wide along some axes, in two dimensions."""
    x, w, bias = b.input("x", (1, c, depth, size, size)), random(o, c, *kernel), random(o)
    return conv(b, x, w, bias, pads=[k // 2 for k in kernel] * 2)


@candidate(
    ("flat-convolutions",),
    {
        "wav2vec2 512x3000, 3/2": (512, 512, 3000, 3, 2, 1, 1),
        "TCN 64x1000, 3 dilated 4": (64, 64, 1000, 3, 1, 4, 1),
        "Whisper tiny 384x1500, 3": (384, 384, 1500, 3, 1, 1, 1),
        "Conformer 256x500, depthwise 31": (256, 256, 500, 31, 1, 1, 256),
    },
)
def line_convolution(
    b: Builder, form: str, c: int, o: int, length: int, kernel: int, stride: int, dilation: int, group: int
) -> str:
    """A 1-D convolution in two dimensions."""
    x, w, bias = b.input("x", (1, c, length)), random(o, c // group, kernel), random(o)
    pad = dilation * (kernel // 2)
    return conv(b, x, w, bias, pads=[pad, pad], strides=[stride], dilations=[dilation], group=group)
