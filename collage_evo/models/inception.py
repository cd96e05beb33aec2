"""Inception v3, written operator by operator, as exporters write it at opset 18."""

from __future__ import annotations

import onnx

from collage_evo.errors import InputError
from collage_evo.models.convnets import ConvNet

_LEAST_SIZE = 75
"""The smallest image size that survives the five reductions."""
_SEVENS = (128, 160, 160, 192)
"""Channels inside the four blocks whose 7x7 convolutions are factorised."""


def inception_v3(seed: int, size: int = 299) -> onnx.ModelProto:
    """Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016): float32
    ``image`` [1, 3, size, size] to ``scores`` [1, 1000]. Without the auxiliary classifier, only there for training.

    Raises:
        InputError: ``size`` is under 75.
    """
    if size < _LEAST_SIZE:
        raise InputError(f"builtin:inception_v3 has size={size}: its five reductions need at least {_LEAST_SIZE}")
    net = _InceptionV3("inception_v3", seed)
    x = net.stem(net.input("image", (1, 3, size, size)))
    channels = 192
    for pooled in (32, 64, 64):
        x, channels = net.fives(x, channels, pooled), 224 + pooled
    x, channels = net.first_reduction(x, channels), 480 + channels
    for inner in _SEVENS:
        x = net.sevens(x, channels, inner)
    x, channels = net.second_reduction(x, channels), 512 + channels
    for _ in range(2):
        x, channels = net.spread(x, channels), 2048
    return net.classified(x, channels, 1000)


class _InceptionV3(ConvNet):
    """A builder with the blocks of the paper's figures 5, 6, 7 and 10: branches of one input, concatenated."""

    def stem(self, image: str) -> str:
        """An image to 192 channels of an eighth of its size."""
        x = self.conv(image, 3, 32, kernel=(3, 3), strides=(2, 2), rectified=False, padded=False)
        x = self.conv(x, 32, 32, kernel=(3, 3), padded=False)
        x = self.halved(self.conv(x, 32, 64, kernel=(3, 3)))
        x = self.conv(x, 64, 80, kernel=(1, 1))
        return self.halved(self.conv(x, 80, 192, kernel=(3, 3), padded=False))

    def fives(self, x: str, channels: int, pooled: int) -> str:
        """A block with a 5x5 convolution: 224 + ``pooled`` channels."""
        return self.side_by_side(
            self.row(x, channels, (1, 64)),
            self.row(x, channels, (1, 48), (5, 64)),
            self.row(x, channels, (1, 64), (3, 96), (3, 96)),
            self.row(self.averaged(x), channels, (1, pooled)),
        )

    def first_reduction(self, x: str, channels: int) -> str:
        """Halves the size: 480 channels and those of ``x``."""
        return self.side_by_side(
            self.shrunk(x, channels, 384),
            self.shrunk(self.row(x, channels, (1, 64), (3, 96)), 96, 96),
            self.halved(x),
        )

    def sevens(self, x: str, channels: int, inner: int) -> str:
        """A block whose 7x7 convolutions are factorised into 1x7 and 7x1: 768 channels."""
        wide, tall = (1, 7), (7, 1)
        return self.side_by_side(
            self.row(x, channels, (1, 192)),
            self.row(x, channels, (1, inner), (wide, inner), (tall, 192)),
            self.row(x, channels, (1, inner), (tall, inner), (wide, inner), (tall, inner), (wide, 192)),
            self.row(self.averaged(x), channels, (1, 192)),
        )

    def second_reduction(self, x: str, channels: int) -> str:
        """Halves the size: 512 channels and those of ``x``."""
        return self.side_by_side(
            self.shrunk(self.row(x, channels, (1, 192)), 192, 320),
            self.shrunk(self.row(x, channels, (1, 192), ((1, 7), 192), ((7, 1), 192)), 192, 192),
            self.halved(x),
        )

    def spread(self, x: str, channels: int) -> str:
        """A block whose last convolutions are 1x3 and 3x1 side by side: 2048 channels."""
        three = self.row(x, channels, (1, 384))
        threes = self.row(x, channels, (1, 448), (3, 384))
        both = [self.row(y, 384, (kernel, 384)) for y in (three, threes) for kernel in ((1, 3), (3, 1))]
        pooled = self.row(self.averaged(x), channels, (1, 192))
        return self.side_by_side(self.row(x, channels, (1, 320)), *both, pooled)

    def row(self, x: str, channels: int, *layers: tuple[int | tuple[int, int], int]) -> str:
        """Consecutive convolutions, each given by its kernel and its channels."""
        for extent, width in layers:
            kernel = extent if isinstance(extent, tuple) else (extent, extent)
            x, channels = self.conv(x, channels, width, kernel=kernel), width
        return x

    def shrunk(self, x: str, channels: int, width: int) -> str:
        """A 3x3 convolution that halves the size as ``halved`` does."""
        return self.conv(x, channels, width, kernel=(3, 3), strides=(2, 2), padded=False)

    def halved(self, x: str) -> str:
        return self.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])

    def averaged(self, x: str) -> str:
        return self.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])

    def side_by_side(self, *branches: str) -> str:
        return self.op("Concat", *branches, axis=1)
