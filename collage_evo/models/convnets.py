"""Convolutional networks written operator by operator, as exporters write them at opset 18."""

from __future__ import annotations

from collections.abc import Sequence
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
_RESNEXT_STAGES = ((128, 3), (256, 4), (512, 6), (1024, 3))
"""Channels of the grouped convolutions, repeats (Xie et al., CVPR 2017, table 1, ResNeXt-50 32x4d)."""
_RESNEXT_GROUPS = 32
_RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Channels inside the blocks, blocks (Hara et al., CVPR 2018, table 1, ResNet-50)."""
_VIDEO_STAGES = (64, 128, 256, 512)
"""Channels of the stages, each of two blocks (Tran et al., CVPR 2018, table 1, R3D-18)."""
_GENERATOR_CHANNELS = (512, 256, 128, 64)
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


def resnext50_32x4d(seed: int, size: int = 224) -> onnx.ModelProto:
    """ResNeXt-50 32x4d (Xie et al., CVPR 2017): float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000]."""
    net = ConvNet("resnext50_32x4d", seed)
    image = net.input("image", (1, 3, size, size))
    x = net.conv(image, 3, 64, kernel=(7, 7), strides=(2, 2), rectified=False)
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x, channels = net.bottlenecks(x, 64, _RESNEXT_STAGES, axes=2, expansion=2, group=_RESNEXT_GROUPS)
    return net.classified(x, channels, 1000)


def resnet3d_50(seed: int, frames: int = 16, size: int = 112) -> onnx.ModelProto:
    """3D-ResNet-50 (Hara et al., "Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?", CVPR
    2018): float32 ``video`` [1, 3, frames, size, size] to ``scores`` [1, 400].
    """
    net = ConvNet("resnet3d_50", seed)
    video = net.input("video", (1, 3, frames, size, size))
    x = net.conv(video, 3, 64, kernel=(7, 7, 7), strides=(1, 2, 2), rectified=False)
    x = net.op("MaxPool", x, kernel_shape=[3, 3, 3], strides=[2, 2, 2], pads=[1, 1, 1, 1, 1, 1])
    x, channels = net.bottlenecks(x, 64, _RESNET_STAGES, axes=3, expansion=4)
    return net.classified(x, channels, 400)


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


def dcgan(seed: int, latent: int = 100) -> onnx.ModelProto:
    """The generator of DCGAN (Radford et al., ICLR 2016): ``noise`` [1, latent, 1, 1] to ``image`` [1, 3, 64, 64]."""
    net = ConvNet("dcgan", seed)
    x, channels = net.input("noise", (1, latent, 1, 1)), latent
    for position, width in enumerate(_GENERATOR_CHANNELS):
        x = net.upsample(x, channels, width, first=position == 0)
        x = net.op("Relu", net.batchnorm(x, width, f"layers.{position}"))
        channels = width
    return net.model(net.op("Tanh", net.upsample(x, channels, 3), output="image"))


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

    def bottlenecks(
        self, x: str, channels: int, stages: Sequence[tuple[int, int]], *, axes: int, expansion: int, group: int = 1
    ) -> tuple[str, int]:
        """Stages of bottleneck blocks, and the channels of the last; all but the first stage halve every axis.

        A stage is given by the channels inside its blocks, whose outputs have ``expansion`` times as many, and their
        number.
        """
        one, three = (1,) * axes, (3,) * axes
        for stage, (inner, repeats) in enumerate(stages):
            for repeat in range(repeats):
                strides = (2,) * axes if stage and repeat == 0 else one
                y = self.conv(x, channels, inner, kernel=one)
                y = self.conv(y, inner, inner, kernel=three, strides=strides, group=group)
                x = self.joined(x, channels, y, inner, expansion * inner, kernel=one, strides=strides)
                channels = expansion * inner
        return x, channels

    def upsample(self, x: str, channels: int, width: int, first: bool = False) -> str:
        """A 4x4 transposed convolution that doubles the size, or at the ``first`` makes 4x4 of one element."""
        name = f"layers.{self._layers}.weight"
        self._layers += 1
        # With a stride of two every output element has a quarter of the kernel's products.
        fan_in = channels if first else channels * 4
        weight = self.weight(name, (channels, width, 4, 4), fan_in, rectified=not first)
        strides, pads = ([1, 1], [0] * 4) if first else ([2, 2], [1] * 4)
        return self.op("ConvTranspose", x, weight, kernel_shape=[4, 4], strides=strides, pads=pads)

    def classified(self, x: str, channels: int, classes: int, rectified: bool = True) -> onnx.ModelProto:
        """The model, finished by average pooling and a linear layer: output ``scores`` [1, classes]."""
        x = self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)
        weight = self.weight("classifier.weight", (classes, channels), channels, rectified)
        bias = self.const(normal(generator(self._seed, "classifier.bias"), (classes,), 0.05), "classifier.bias")
        return self.model(self.op("Gemm", x, weight, bias, name="classifier", output="scores", transB=1))
