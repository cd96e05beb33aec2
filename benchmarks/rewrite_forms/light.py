"""Normalisations, pools and activations in other forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from collage_evo.models.builder import Builder
from rewrite_forms.form import ORIGINAL, candidate, conv, cut, random, reshape


@candidate(
    ("operator", "squares"),
    {"BERT-base 128x768": (128, 768), "Swin-T 3136x96": (3136, 96), "MiniLM 32x384": (32, 384)},
)
def layer_normalisation(b: Builder, form: str, rows: int, width: int) -> str:
    """A layer normalisation of small operators as one operator, or with E[x^2] - E[x]^2."""
    x, scale, bias = b.input("x", (1, rows, width)), b.const(random(width)), b.const(random(width))
    if form == "operator":
        return b.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
    mean = b.op("ReduceMean", x, b.ints(-1))
    away = b.op("Sub", x, mean)
    if form == "squares":
        square = b.op("ReduceMean", b.op("Mul", x, x), b.ints(-1))
        variance = b.op("Sub", square, b.op("Mul", mean, mean))
    else:
        variance = b.op("ReduceMean", b.op("Pow", away, b.const(np.float32(2))), b.ints(-1))
    root = b.op("Sqrt", b.op("Add", variance, b.const(np.float32(1e-5))))
    return b.op("Add", b.op("Mul", b.op("Div", away, root), scale), bias)


_IMAGES = {"style transfer 128x56x56": (128, 56), "style transfer 32x224x224": (32, 224), "U-Net 64x32x32": (64, 32)}


@candidate(("normalised-rows", "two-means", "squares"), _IMAGES)
def instance_normalisation(b: Builder, form: str, c: int, size: int) -> str:
    """An instance normalisation of small operators, with E[x^2] - E[x]^2, or by LayerNormalization."""
    x, scale, bias = b.input("x", (1, c, size, size)), random(c), random(c)
    if form == ORIGINAL:
        return b.op("InstanceNormalization", x, b.const(scale), b.const(bias), epsilon=1e-5)
    tall = (1, c, 1, 1)
    mean = b.op("ReduceMean", x, b.ints(2, 3))
    if form == "squares":
        square = b.op("ReduceMean", b.op("Mul", x, x), b.ints(2, 3))
        variance = b.op("Sub", square, b.op("Mul", mean, mean))
    else:
        away = b.op("Sub", x, mean)
        variance = b.op("ReduceMean", b.op("Mul", away, away), b.ints(2, 3))
    root = b.op("Sqrt", b.op("Add", variance, b.const(np.float32(1e-5))))
    factor = b.op("Div", b.const(scale.reshape(tall)), root)
    shift = b.op("Sub", b.const(bias.reshape(tall)), b.op("Mul", mean, factor))
    return b.op("Add", b.op("Mul", x, factor), shift)


@candidate(
    ("affine", "depthwise"),
    {"DenseNet-121 256x56x56": (256, 56), "DenseNet-121 512x14x14": (512, 14)},
)
def batch_normalisation(b: Builder, form: str, c: int, size: int) -> str:
    """A batch normalisation with its Relu that no convolution takes in, as Mul and Add, or depthwise."""
    x = b.input("x", (1, c, size, size))
    scale, bias, mean, variance = random(c), random(c, seed=1), random(c, seed=2), np.abs(random(c, seed=3)) + 0.5
    if form == ORIGINAL:
        parts = [b.const(part.astype(np.float32)) for part in (scale, bias, mean, variance)]
        return b.op("Relu", b.op("BatchNormalization", x, *parts, epsilon=1e-5))
    factor = (scale / np.sqrt(variance + 1e-5)).astype(np.float32)
    shift = (bias - mean * factor).astype(np.float32)
    if form == "depthwise":
        return b.op("Relu", conv(b, x, factor.reshape(c, 1, 1, 1), shift, group=c))
    y = b.op("Mul", x, b.const(factor.reshape(1, c, 1, 1)))
    return b.op("Relu", b.op("Add", y, b.const(shift.reshape(1, c, 1, 1))))


@candidate(
    ("mean-pools", "pool"),
    {"ResNet-50 2048x7x7": (2048, 7), "MobileNet v2 1280x7x7": (1280, 7), "squeeze 96x56x56": (96, 56)},
)
def global_pool(b: Builder, form: str, c: int, size: int) -> str:
    """GlobalAveragePool as ReduceMean or as AveragePool."""
    x = b.input("x", (1, c, size, size))
    if form == "pool":
        return b.op("AveragePool", x, kernel_shape=[size, size])
    return b.op("GlobalAveragePool", x)


@candidate(
    ("depthwise", "slices"),
    {
        "DenseNet-121 128x56x56, 2x2/2": (128, 56, 2, 2),
        "Inception v3 288x35x35, 3x3": (288, 35, 3, 1),
        "NASNet-A 44x28x28, 3x3": (44, 28, 3, 1),
    },
)
def average_pool(b: Builder, form: str, c: int, size: int, kernel: int, stride: int) -> str:
    """An average pool (pads counted) as a depthwise convolution, or as a sum of slices."""
    x, pad = b.input("x", (1, c, size, size)), kernel // 2 if stride == 1 else 0
    sides: dict[str, Any] = {"strides": [stride] * 2, "pads": [pad] * 4}
    if form == "depthwise":
        return conv(b, x, np.full((c, 1, kernel, kernel), 1 / kernel**2, np.float32), group=c, **sides)
    if form == "slices" and stride == kernel == 2:
        total = ""
        for i in range(2):
            for j in range(2):
                part = cut(b, x, (i, j), (size, size), (2, 3), (2, 2))
                total = b.op("Add", total, part) if total else part
        return b.op("Mul", total, b.const(np.float32(0.25)))
    return b.op("AveragePool", x, kernel_shape=[kernel] * 2, count_include_pad=1, **sides)


@candidate(("rows-first",), {"Inception v3 3x3/2 64x147x147": (64, 147)})
def small_max_pool(b: Builder, form: str, c: int, size: int) -> str:
    """A maximum over a small square as one over columns and one over rows."""
    x = b.input("x", (1, c, size, size))
    if form == ORIGINAL:
        return b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    y = b.op("MaxPool", x, kernel_shape=[3, 1], strides=[2, 1])
    return b.op("MaxPool", y, kernel_shape=[1, 3], strides=[1, 2])


@candidate(
    ("separated-pools",),
    {
        "SPPF 256x20x20, 5x5": (256, 20, 5),
        "YOLOv3-SPP 512x19x19, 9x9": (512, 19, 9),
        "YOLOv3-SPP 512x19x19, 13x13": (512, 19, 13),
    },
)
def large_max_pool(b: Builder, form: str, c: int, size: int, kernel: int) -> str:
    """A maximum over a large square as one over columns and one over rows."""
    return b.op("MaxPool", b.input("x", (1, c, size, size)), kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)


@candidate(
    ("operator", "contributed"),
    {"BERT-base 128x3072": (128, 3072), "ConvNeXt 3136x384": (3136, 384)},
    opsets={"operator": 20},
)
def gelu(b: Builder, form: str, rows: int, width: int) -> str:
    """Gelu by Erf as small operators, or as one operator."""
    x = b.input("x", (1, rows, width))
    if form == "operator":
        return b.op("Gelu", x)
    if form == "contributed":
        return b.op("Gelu", x, domain="com.microsoft")
    y = b.op("Erf", b.op("Div", x, b.const(np.float32(np.sqrt(2)))))
    y = b.op("Mul", x, b.op("Add", y, b.const(np.float32(1))))
    return b.op("Mul", y, b.const(np.float32(0.5)))


@candidate(
    ("contributed", "tanh"),
    {"EfficientNet 240x28x28": (240, 28), "YOLO 64x80x80": (64, 80)},
)
def swish(b: Builder, form: str, c: int, size: int) -> str:
    """x times its Sigmoid as ONNX Runtime's own operator, or by Tanh."""
    x = b.input("x", (1, c, size, size))
    if form == "contributed":
        return b.op("QuickGelu", x, alpha=1.0, domain="com.microsoft")
    if form == "tanh":
        half = b.op("Mul", x, b.const(np.float32(0.5)))
        return b.op("Add", b.op("Mul", half, b.op("Tanh", half)), half)
    return b.op("Mul", x, b.op("Sigmoid", x))


@candidate(
    ("steps", "turned"),
    {"BERT-base 12x128x128": (12, 128, -1), "detector 1x91x900 over classes": (1, 900, 1)},
)
def softmax(b: Builder, form: str, heads: int, size: int, axis: int) -> str:
    """A Softmax as its steps, or over the last axis."""
    x = b.input("x", (1, heads, size, size) if axis < 0 else (1, 91, size))
    if form == "steps":
        y = b.op("Exp", b.op("Sub", x, b.op("ReduceMax", x, b.ints(axis))))
        return b.op("Div", y, b.op("ReduceSum", y, b.ints(axis)))
    if form == "turned" and axis > 0:
        y = b.op("Softmax", b.op("Transpose", x, perm=[0, 2, 1]), axis=-1)
        return b.op("Transpose", y, perm=[0, 2, 1])
    return b.op("Softmax", x, axis=axis)


@candidate(
    ("reshaped",),
    {"ESPCN 9x224x224 by 3": (9, 224, 3), "EDSR 256x64x64 by 2": (256, 64, 2)},
)
def pixel_shuffle(b: Builder, form: str, c: int, size: int, factor: int) -> str:
    """DepthToSpace (channels first) as Reshape and Transpose."""
    x = b.input("x", (1, c, size, size))
    if form == ORIGINAL:
        return b.op("DepthToSpace", x, blocksize=factor, mode="CRD")
    y = b.op("Transpose", reshape(b, x, -1, factor, factor, size, size), perm=[0, 3, 1, 4, 2])
    return reshape(b, y, 1, c // factor**2, size * factor, size * factor)


@candidate(
    ("gathered-channels",),
    {"ShuffleNet 240x28x28, 3 groups": (240, 28, 3), "ShuffleNet v2 232x14x14, 2 groups": (232, 14, 2)},
)
def channel_shuffle(b: Builder, form: str, c: int, size: int, groups: int) -> str:
    """A shuffle of channels as one Gather."""
    x = b.input("x", (1, c, size, size))
    y = b.op("Transpose", reshape(b, x, 1, groups, c // groups, size, size), perm=[0, 2, 1, 3, 4])
    return reshape(b, y, 1, c, size, size)


@candidate(
    ("interleaved-parts",),
    {
        "music: 8 of 172x309": (8, 172, 309, True),
        "8 of 172x309, last": (8, 172, 309, False),
        "2 of 172x36, last": (2, 172, 36, False),
    },
)
def planes(b: Builder, form: str, count: int, rows: int, width: int, turned: bool) -> str:
    """Planes that are joined channel by channel, and then perhaps brought one behind the other."""
    x = b.input("x", (1, rows, width, 1))
    parts = [b.op("Mul", x, b.const(np.float32(place + 1))) for place in range(count)]
    y = b.op("Concat", *parts, axis=-1)
    return b.op("Transpose", y, perm=[0, 3, 1, 2]) if turned else y
