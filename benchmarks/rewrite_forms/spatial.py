"""Convolutions in other forms that move pixels: phases, tiles, batches of pixels, Winograd's transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from collage_evo.models.builder import Builder
from rewrite_forms.convolutions import shifted
from rewrite_forms.form import ORIGINAL, candidate, conv, cut, random, reshape

Pair = tuple[int, int]


@candidate(
    ("phases",),
    {
        "ResNet-50 3x224x224, 7x7/2": (3, 64, 224, 7, 2, 3),
        "MobileNet v2 3x224x224, 3x3/2": (3, 32, 224, 3, 2, 1),
        "ConvNeXt 3x224x224, 4x4/4": (3, 96, 224, 4, 4, 0),
        "ConvNeXt 96x56x56, 2x2/2": (96, 192, 56, 2, 2, 0),
        "ViT-B 3x224x224, 16x16/16": (3, 768, 224, 16, 16, 0),
        "ViT-S 3x224x224, 32x32/32": (3, 384, 224, 32, 32, 0),
    },
)
def strided_stem(b: Builder, form: str, c: int, o: int, size: int, kernel: int, stride: int, pad: int) -> str:
    """A strided convolution on few channels by space-to-depth and one of stride 1."""
    x, w, bias = b.input("x", (1, c, size, size)), random(o, c, kernel, kernel), random(o)
    if form == ORIGINAL:
        return conv(b, x, w, bias, strides=[stride] * 2, pads=[pad] * 4)
    made = (size + 2 * pad - kernel) // stride + 1
    taps = -(-kernel // stride)
    after = (made + taps - 1) * stride - size - pad
    if pad or after:
        x = b.op("Pad", x, b.ints(0, 0, pad, pad, 0, 0, max(after, 0), max(after, 0)))
    grown = np.zeros((o, c, taps * stride, taps * stride), np.float32)
    grown[:, :, :kernel, :kernel] = w
    grown = grown.reshape(o, c, taps, stride, taps, stride).transpose(0, 3, 5, 1, 2, 4)
    y = b.op("SpaceToDepth", x, blocksize=stride)
    return conv(b, y, np.ascontiguousarray(grown.reshape(o, stride * stride * c, taps, taps)), bias)


_FEW = {
    "DCGAN 64x32x32 to 3, 4x4/2": (64, 3, 32, 4, 2, 1),
    "PP-OCR detector 24x160x160 to 1, 2x2/2": (24, 1, 160, 2, 2, 0),
    "FSRCNN 32x128x128 to 1, 9x9/3": (32, 1, 128, 9, 3, 3),
    "FSRCNN 56x64x64 to 3, 8x8/4": (56, 3, 64, 8, 4, 2),
}


@candidate(("phase-convolutions",), _FEW)
def transposed_to_few(b: Builder, form: str, c: int, o: int, size: int, kernel: int, stride: int, pad: int) -> str:
    """A transposed convolution to few channels as a convolution to all phases, and DepthToSpace."""
    inputs = [b.input("x", (1, c, size, size)), b.const(random(c, o, kernel, kernel)), b.const(random(o))]
    return b.op("ConvTranspose", *inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)


@candidate(
    ("places-as-channels",),
    {
        "U-Net mask 32x256x256 to 1, 3x3": (32, 1, (256, 256), (3, 3), (1, 1)),
        "super-resolution 64x224x224 to 3, 3x3": (64, 3, (224, 224), (3, 3), (1, 1)),
        "SRGAN, style transfer 64x224x224 to 3, 9x9": (64, 3, (224, 224), (9, 9), (1, 1)),
        "music 8x172x264 to 1, 5x5": (8, 1, (172, 264), (5, 5), (1, 1)),
        "music 33x172x88 to 1, 3x3": (33, 1, (172, 88), (3, 3), (1, 1)),
        "music 8x172x264 to 8, 3x39": (8, 8, (172, 264), (3, 39), (1, 1)),
        "low-pass filter 1x44098, 256/2": (1, 1, (1, 44098), (1, 256), (1, 2)),
    },
)
def convolution_to_few(b: Builder, form: str, c: int, o: int, sizes: Pair, kernel: Pair, strides: Pair) -> str:
    """A convolution to few channels as one of several places at once."""
    pads = [(k - 1) // 2 if stride == 1 else 0 for k, stride in zip(kernel, strides, strict=True)] * 2
    x = b.input("x", (1, c, *sizes))
    return conv(b, x, random(o, c, *kernel), random(o), strides=list(strides), pads=pads)


_UP = {
    "DCGAN 1024x4x4, 4x4/2": (1024, 512, 4, 4, 2, 1),
    "DCGAN 512x8x8, 4x4/2": (512, 256, 8, 4, 2, 1),
    "DCGAN 128x32x32, 4x4/2": (128, 64, 32, 4, 2, 1),
    "U-Net 256x32x32, 2x2/2": (256, 128, 32, 2, 2, 0),
    "U-Net 128x64x64, 2x2/2": (128, 64, 64, 2, 2, 0),
    "PP-OCR detector 24x160x160, 2x2/2": (24, 24, 160, 2, 2, 0),
}


@candidate(("phases",), _UP)
def transposed_convolution(
    b: Builder, form: str, c: int, o: int, size: int, kernel: int, stride: int, pad: int
) -> str:
    """A transposed convolution to many channels as a convolution to all phases, and DepthToSpace."""
    x, w, bias = b.input("x", (1, c, size, size)), random(c, o, kernel, kernel), random(o)
    if form == ORIGINAL:
        inputs = [x, b.const(w), b.const(bias)]
        return b.op("ConvTranspose", *inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    return by_phases(b, x, w, bias, stride, pad)


def by_phases(b: Builder, x: str, w: np.ndarray, bias: np.ndarray, stride: int, pad: int) -> str:
    """One convolution makes all phases, on an image that is larger by what pads cut away."""
    c, o, kernel, _ = w.shape
    taps = -(-kernel // stride)
    grown = np.zeros((c, o, taps * stride, taps * stride), np.float32)
    grown[:, :, :kernel, :kernel] = w
    grown = grown.reshape(c, o, taps, stride, taps, stride)[:, :, ::-1, :, ::-1]
    # DepthToSpace takes phase, phase, channel.
    turned = grown.transpose(3, 5, 1, 0, 2, 4).reshape(stride * stride * o, c, taps, taps)
    y = conv(b, x, np.ascontiguousarray(turned), np.tile(bias, stride * stride), pads=[taps - 1] * 4)
    y = b.op("DepthToSpace", y, blocksize=stride)
    end = -(taps * stride - kernel) - pad
    return cut(b, y, (pad, pad), (end or 2**31, end or 2**31), (2, 3), (1, 1)) if pad or end else y


@candidate(
    ("resized-convolutions", "phases"),
    {
        "diffusion U-Net 256x16x16": (256, 256, 16),
        "diffusion U-Net 128x32x32": (128, 128, 32),
        "VAE decoder 128x64x64": (128, 64, 64),
    },
)
def convolution_of_resize(b: Builder, form: str, c: int, o: int, size: int) -> str:
    """Nearest neighbours twice as large and a 3x3 convolution: 4 phases of 2x2 kernels on the small image."""
    x, w, bias = b.input("x", (1, c, size, size)), random(o, c, 3, 3), random(o)
    if form == ORIGINAL:
        scales = b.const(np.array([1, 1, 2, 2], np.float32))
        modes: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        y = b.op("Resize", x, "", scales, mode="nearest", **modes)
        return conv(b, y, w, bias, pads=[1] * 4)
    fold = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], np.float32)
    grown = np.einsum("kp,lq,ocpq->cokl", fold, fold, w)
    return by_phases(b, x, grown, bias, 2, 1)


@candidate(
    ("repeated-pixels", "expanded"),
    {
        "FPN 256x20x20": (256, 20, 2),
        "YOLO 128x40x40": (128, 40, 2),
        "PP-OCR neck 24x40x40 by 4": (24, 40, 4),
    },
)
def nearest_resize(b: Builder, form: str, c: int, size: int, factor: int) -> str:
    """Nearest neighbours by a whole factor."""
    x = b.input("x", (1, c, size, size))
    if form == "expanded":
        y = b.op("Expand", reshape(b, x, 1, c, size, 1, size, 1), b.ints(1, c, size, factor, size, factor))
        return reshape(b, y, 1, c, size * factor, size * factor)
    scales = b.const(np.array([1, 1, factor, factor], np.float32))
    modes: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return b.op("Resize", x, "", scales, mode="nearest", **modes)


@candidate(
    ("blended-pixels",),
    {
        "U-Net 128x32x32": (128, 32, 2),
        "segmentation 21x65x65 by 4": (21, 65, 4),
        "depth 64x96x96": (64, 96, 2),
    },
)
def linear_resize(b: Builder, form: str, c: int, size: int, factor: int) -> str:
    """Linear interpolation by a whole factor as a transposed convolution of each channel, its edges repeated."""
    x = b.input("x", (1, c, size, size))
    scales = b.const(np.array([1, 1, factor, factor], np.float32))
    return b.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")


@candidate(
    ("phases", "rows"),
    {
        "ConvNeXt 96x56x56, 7x7": (96, 56, 7),
        "ConvNeXt 384x14x14, 7x7": (384, 14, 7),
        "RepLKNet 128x56x56, 31x31": (128, 56, 31),
    },
)
def large_depthwise(b: Builder, form: str, c: int, size: int, kernel: int) -> str:
    """A large depthwise convolution in four phases of 2x2 pixels, or as a sum over bands of rows."""
    x, w, bias = b.input("x", (1, c, size, size)), random(c, 1, kernel, kernel), random(c)
    half = kernel // 2
    if form == ORIGINAL:
        return conv(b, x, w, bias, group=c, pads=[half] * 4)
    if form == "rows":
        total, begin = "", 0
        for rows in (kernel // 2, kernel - kernel // 2):
            pads = [half - begin, half, begin + rows - 1 - half, half]
            inner = b.op("Pad", x, b.ints(0, 0, *(max(p, 0) for p in pads[:2]), 0, 0, *(max(p, 0) for p in pads[2:])))
            low, high = max(-pads[0], 0), min(pads[2], 0)
            if low or high:
                inner = cut(b, inner, (low,), (high or 2**31,), (2,), (1,))
            y = conv(b, inner, w[:, :, begin : begin + rows], None if total else bias, group=c)
            total, begin = b.op("Add", total, y) if total else y, begin + rows
        return total
    # Output 2i+a reads input 2j+p by tap 2(j-i) + p - a + half.
    reach = (half + 1) // 2
    taps = 2 * reach + 1
    grown = np.zeros((c, 2, 2, 2, 2, taps, taps), np.float32)
    for a, d, p, q, j, k in np.ndindex(2, 2, 2, 2, taps, taps):
        row, column = 2 * (j - reach) + p - a + half, 2 * (k - reach) + q - d + half
        if 0 <= row < kernel and 0 <= column < kernel:
            grown[:, a, d, p, q, j, k] = w[:, 0, row, column]
    small = size // 2
    y = b.op("Transpose", reshape(b, x, c, small, 2, small, 2), perm=[0, 2, 4, 1, 3])
    y = reshape(b, y, 1, 4 * c, small, small)
    y = conv(b, y, grown.reshape(4 * c, 4, taps, taps), np.repeat(bias, 4), group=c, pads=[reach] * 4)
    y = b.op("Transpose", reshape(b, y, c, 2, 2, small, small), perm=[0, 3, 1, 4, 2])
    return reshape(b, y, 1, c, size, size)


@candidate(
    ("batched",),
    {
        "DeepLab 256x28x28, dilated 2": (256, 28, 2),
        "DeepLab 512x28x28, dilated 4": (512, 28, 4),
    },
)
def dilated_convolution(b: Builder, form: str, c: int, size: int, dilation: int) -> str:
    """A dilated 3x3 convolution on a batch of the image's phases."""
    x, w, bias = b.input("x", (1, c, size, size)), random(c, c, 3, 3), random(c)
    if form == ORIGINAL:
        return conv(b, x, w, bias, pads=[dilation] * 4, dilations=[dilation] * 2)
    small = size // dilation
    y = b.op("Transpose", reshape(b, x, c, small, dilation, small, dilation), perm=[2, 4, 0, 1, 3])
    y = conv(b, reshape(b, y, dilation * dilation, c, small, small), w, bias, pads=[1] * 4)
    y = b.op("Transpose", reshape(b, y, dilation, dilation, c, small, small), perm=[2, 3, 0, 4, 1])
    return reshape(b, y, 1, c, size, size)


_B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32)
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
_A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32)
_B4 = np.array(
    [
        [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
    ],
    np.float32,
)  # fmt: skip
_G4 = np.array(
    [
        [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1],
    ],
    np.float32,
)  # fmt: skip
_A4 = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float32)


@candidate(
    ("winograd-2", "winograd-4", "products"),
    {
        "ResNet-50 64x56x56": (64, 56),
        "ResNet-50 128x28x28": (128, 28),
        "ResNet-50 256x14x14": (256, 14),
        "ResNet-50 512x7x7": (512, 7),
    },
)
def square_convolution(b: Builder, form: str, c: int, size: int) -> str:
    """A 3x3 convolution as Winograd's transforms around batched products, or as im2col and one product."""
    x, w, bias = b.input("x", (1, c, size, size)), random(c, c, 3, 3), random(c)
    if form == ORIGINAL:
        return conv(b, x, w, bias, pads=[1] * 4)
    if form == "products":
        taps = reshape(b, shifted(b, x, c, size, 1), 9 * c, size * size)
        y = b.op("MatMul", b.const(w.transpose(0, 2, 3, 1).reshape(c, -1)), taps)
        return reshape(b, b.op("Add", y, b.const(bias.reshape(c, 1))), 1, c, size, size)
    m = int(form[-1])
    forward, kernel, back = (_B, _G, _A) if m == 2 else (_B4, _G4, _A4)
    n, tiles = m + 2, -(-size // m)
    products = np.einsum("ip,jq,ocpq->ijoc", kernel, kernel, w).reshape(n * n, c, c)
    spread = np.einsum("ip,jq->ijpq", forward, forward).reshape(n * n, 1, n, n)
    over = tiles * m - size
    y = conv(b, reshape(b, x, c, 1, size, size), spread, strides=[m, m], pads=[1, 1, 1 + over, 1 + over])
    y = b.op("Transpose", reshape(b, y, c, n * n, tiles * tiles), perm=[1, 0, 2])
    y = b.op("MatMul", b.const(products), y)
    gather = np.einsum("ip,jq->ijpq", back, back).reshape(m * m, n * n)
    y = b.op("MatMul", b.const(gather), reshape(b, y, n * n, c * tiles * tiles))
    y = b.op("Transpose", reshape(b, y, m, m, c, tiles, tiles), perm=[2, 3, 0, 4, 1])
    y = b.op("Add", reshape(b, y, 1, c, tiles * m, tiles * m), b.const(bias.reshape(1, c, 1, 1)))
    return cut(b, y, (0, 0), (size, size), (2, 3), (1, 1)) if over else y


@candidate(
    ("bands-4", "bands-16"),
    {"EDSR 64x128x128": (64, 128), "super-resolution 32x256x256": (32, 256)},
)
def chain_in_bands(b: Builder, form: str, c: int, size: int) -> str:
    """Two 3x3 convolutions on bands of rows, one after the other, so that what is between stays in cache."""
    x = b.input("x", (1, c, size, size))
    kernels = [random(c, c, 3, 3, seed=k) for k in range(2)]
    if form == ORIGINAL:
        y = b.op("Relu", conv(b, x, kernels[0], random(c), pads=[1] * 4))
        return b.op("Relu", conv(b, y, kernels[1], random(c), pads=[1] * 4))
    bands = int(form.split("-")[1])
    rows, made = size // bands, []
    for k in range(bands):
        low, high = max(k * rows - 2, 0), min((k + 1) * rows + 2, size)
        # At the image's own edge the pads are zeros of each layer; inside, the halo is there.
        top, bottom = int(k == 0), int(k == bands - 1)
        y = cut(b, x, (low,), (high,), (2,), (1,))
        for w in kernels:
            y = b.op("Relu", conv(b, y, w, random(c), pads=[top, 1, bottom, 1]))
        made.append(y)
    return b.op("Concat", *made, axis=2)
