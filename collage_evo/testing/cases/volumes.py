"""Cases on five axes, [1, C, D, H, W]: three-dimensional convolutions and operators that may follow them."""

from __future__ import annotations

from typing import Any

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import Given, case, conv, convolution, one, weight


def video(b: Builder, channels: int = 16, depth: int = 4, height: int = 9, width: int = 11, name: str = "x") -> str:
    return b.input(name, (1, channels, depth, height, width))


def conv3(b: Builder, x: str, out: int, channels: int, **attributes: Any) -> str:
    """A 3x3x3 convolution that preserves the size."""
    return conv(b, x, (out, channels, 3, 3, 3), pads=[1] * 6, **attributes)


VIDEO = (1, 16, 4, 9, 11)
CUBE: dict[str, Any] = {"pads": [1] * 6}
convolution("conv_3d", VIDEO, (32, 16, 3, 3, 3), **CUBE)
convolution("conv_3d_odd", (1, 3, 5, 9, 11), (10, 3, 3, 3, 2), bias=False, pads=[0, 1, 0, 2, 0, 1])
convolution("conv_3d_stride", (1, 16, 6, 10, 10), (12, 16, 3, 3, 3), **CUBE, strides=[2, 2, 2])
convolution("conv_3d_spatial_only", VIDEO, (8, 16, 1, 3, 3), pads=[0, 1, 1, 0, 1, 1], strides=[2, 1, 1])
convolution("conv_3d_depth_only", (1, 16, 3, 9, 11), (8, 16, 5, 1, 1), pads=[2, 0, 0, 2, 0, 0])
convolution("conv_3d_dilated_planes", VIDEO, (8, 16, 3, 3, 3), pads=[1, 2, 2, 1, 2, 2], dilations=[1, 2, 2])
convolution("conv_3d_dilated_depth", VIDEO, (8, 16, 3, 3, 3), pads=[2, 1, 1, 2, 1, 1], dilations=[2, 1, 1])
convolution("conv_3d_groups", VIDEO, (16, 4, 3, 3, 3), **CUBE, group=4)
convolution("conv_3d_batch_two", (2, 4, 5, 9, 9), (8, 4, 3, 3, 3), **CUBE)


@case
def conv_3d_add_relu(b: Builder) -> str:
    return b.op("Relu", b.op("Add", conv3(b, video(b), 16, 16), video(b, name="r")))


@case
def conv_3d_twice_itself(b: Builder) -> str:
    y = conv3(b, video(b), 8, 16)
    return b.op("Add", y, y)


@case
def conv_3d_inner_output(b: Builder) -> list[str]:
    y = conv3(b, video(b), 8, 16)
    return [b.op("Relu", y), y]


@case
def residual_block_3d(b: Builder) -> str:
    x = video(b, 16, 4, 10, 10)
    y = b.op("Relu", conv3(b, x, 24, 16, strides=[2, 2, 2]))
    y = conv3(b, y, 24, 24)
    return b.op("Relu", b.op("Add", y, conv(b, x, (24, 16, 1, 1, 1), strides=[2, 2, 2])))


one("relu_3d", "Relu", Given(VIDEO))


@case
def conv_3d_plus_constant(b: Builder) -> str:
    return b.op("Add", conv3(b, video(b), 16, 16), b.const(weight(16, 1, 1, 1)))


@case
def preactivation_3d(b: Builder) -> str:
    x = video(b)
    return b.op("Add", x, conv3(b, b.op("Relu", x), 16, 16))
