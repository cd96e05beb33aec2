"""Convolutional networks written operator by operator, as exporters write them at opset 18."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx

from collage_evo.models.builder import Builder
from collage_evo.models.weights import BATCHNORM_PARTS, batchnorm_part, generator, layer_weight, normal

Activation = Literal["", "relu", "relu6"]

_MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repeats, first stride (Sandler et al., "MobileNetV2", CVPR 2018, table 2)."""
_VIDEO_STAGES = (64, 128, 256, 512)
"""Channels of the stages, each of two blocks (Tran et al., CVPR 2018, table 1, R3D-18)."""
_RESIDUAL_SCALE = 0.4
"""Scale of the last BatchNormalization in a residual branch, so that sums do not grow from block to block."""


def mobilenet_v2(seed: int, size: int = 224) -> onnx.ModelProto:
    """MobileNet v2, width 1.0: float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000]."""
    net = ConvNet("mobilenet_v2", seed)
    image = net.input("image", (1, 3, size, size))
    x = net.conv(image, 3, 32, kernel=(3, 3), strides=(2, 2), rectified=False, activation="relu6")
    channels = 32
    for expansion, width, repeats, first_stride in _MOBILENET_STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x = net.inverted_residual(x, channels, width, stride, expansion)
            channels = width
    x = net.conv(x, channels, 1280, kernel=(1, 1), rectified=False, activation="relu6")
    return net.classified(x, 1280, 1000, rectified=False)


def resnet3d_18(seed: int, frames: int = 16, size: int = 112) -> onnx.ModelProto:
    """R3D-18, a video ResNet of 3x3x3 convolutions (Tran et al., "A Closer Look at Spatiotemporal Convolutions
    for Action Recognition", CVPR 2018): float32 ``video`` [1, 3, frames, size, size] to ``scores`` [1, 400].
    """
    net = ConvNet("resnet3d_18", seed)
    video = net.input("video", (1, 3, frames, size, size))
    x = net.conv(video, 3, 64, kernel=(3, 7, 7), strides=(1, 2, 2), rectified=False)
    channels, cube = 64, (3, 3, 3)
    for width in _VIDEO_STAGES:
        for repeat in range(2):
            strides = (2, 2, 2) if width != channels and repeat == 0 else (1, 1, 1)
            y = net.conv(x, channels, width, kernel=cube, strides=strides)
            x = net.joined(x, channels, y, width, width, kernel=cube, strides=strides)
            channels = width
    return net.classified(x, channels, 400)


class ConvNet(Builder):
    """A builder with the layers of convolutional networks in any number of spatial axes."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name)
        self._seed = seed
        self._layers = 0

    def weight(self, name: str, shape: tuple[int, ...], fan_in: int, rectified: bool) -> str:
        return self.const(layer_weight(generator(self._seed, name), shape, fan_in, rectified), name)

    def conv(
        self,
        x: str,
        channels: int,
        width: int,
        *,
        kernel: tuple[int, ...],
        strides: tuple[int, ...] = (),
        group: int = 1,
        rectified: bool = True,
        padded: bool = True,
        activation: Activation = "relu",
        scale: float = 1.0,
    ) -> str:
        """Convolution that preserves the size except for its strides (where ``padded``), BatchNormalization,
        activation."""
        name = self.layer()
        x = self.filtered(
            x, channels, width, name=name, kernel=kernel, strides=strides, group=group, rectified=rectified,
            padded=padded,
        )  # fmt: skip
        x = self.batchnorm(x, width, name, scale)
        if activation == "relu6":
            low, high = self.const(np.array(0, np.float32)), self.const(np.array(6, np.float32))
            return self.op("Clip", x, low, high, name=f"{name}.relu6")
        return self.op("Relu", x, name=f"{name}.relu") if activation else x

    def layer(self) -> str:
        """A name for the next layer."""
        self._layers += 1
        return f"features.{self._layers - 1}"

    def filtered(
        self,
        x: str,
        channels: int,
        width: int,
        *,
        name: str,
        kernel: tuple[int, ...],
        strides: tuple[int, ...] = (),
        group: int = 1,
        rectified: bool = True,
        padded: bool = True,
    ) -> str:
        """A convolution without BatchNormalization or activation, with ``name``."""
        shape = (width, channels // group, *kernel)
        weight = self.weight(f"{name}.weight", shape, int(np.prod(shape[1:])), rectified)
        pads = [extent // 2 if padded else 0 for extent in kernel] * 2
        return self.op(
            "Conv", x, weight, name=f"{name}.conv", kernel_shape=list(kernel),
            strides=list(strides or [1] * len(kernel)), pads=pads, dilations=[1] * len(kernel), group=group,
        )  # fmt: skip

    def batchnorm(self, x: str, channels: int, name: str, scale: float = 1.0) -> str:
        parts = [
            self.const(
                batchnorm_part(generator(self._seed, f"{name}.{part}"), part, channels, scale), f"{name}.{part}"
            )
            for part in BATCHNORM_PARTS
        ]
        return self.op("BatchNormalization", x, *parts, name=f"{name}.bn", epsilon=1e-5)

    def inverted_residual(self, x: str, channels: int, width: int, stride: int, expansion: int) -> str:
        """Expand, depthwise convolution, project; added to ``x`` where the shapes allow it."""
        hidden, y, one, three = channels * expansion, x, (1, 1), (3, 3)
        if expansion != 1:
            y = self.conv(y, channels, hidden, kernel=one, rectified=False, activation="relu6")
        y = self.conv(
            y, hidden, hidden, kernel=three, strides=(stride, stride), group=hidden, activation="relu6"
        )
        residual = stride == 1 and channels == width
        scale = _RESIDUAL_SCALE if residual else 1.0
        y = self.conv(y, hidden, width, kernel=one, activation="", scale=scale)
        return self.op("Add", x, y) if residual else y

    def joined(
        self,
        x: str,
        channels: int,
        y: str,
        inner: int,
        width: int,
        *,
        kernel: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> str:
        """The end of a residual block: the last convolution of the branch ``y``, the sum with ``x``, a Relu.

        ``x`` goes through a convolution of its own with ``strides`` if its shape differs.
        """
        y = self.conv(y, inner, width, kernel=kernel, activation="", scale=_RESIDUAL_SCALE)
        if channels != width or any(stride != 1 for stride in strides):
            one = (1,) * len(kernel)
            x = self.conv(x, channels, width, kernel=one, strides=strides, activation="")
        return self.op("Relu", self.op("Add", y, x))

    def classified(self, x: str, channels: int, classes: int, rectified: bool = True) -> onnx.ModelProto:
        """The model, finished by average pooling and a linear layer: output ``scores`` [1, classes]."""
        x = self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)
        weight = self.weight("classifier.weight", (classes, channels), channels, rectified)
        bias = self.const(normal(generator(self._seed, "classifier.bias"), (classes,), 0.05), "classifier.bias")
        return self.model(self.op("Gemm", x, weight, bias, name="classifier", output="scores", transB=1))
