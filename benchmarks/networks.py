"""Networks that benchmarks measure besides the built-in ones, written as exporters write them at opset 18.

Models of a benchmark may be `network:NAME` or `network:NAME?key=value`; :func:`model_source` writes their files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.load.files import save_model
from collage_evo.models.convnets import ConvNet
from collage_evo.models.zoo import zoo_model

PREFIX = "network:"
_RESNEXT_STAGES = ((128, 3), (256, 4), (512, 6), (1024, 3))
"""Channels of the grouped convolutions, repeats (Xie et al., CVPR 2017, table 1, ResNeXt-50 32x4d)."""
_RESNEXT_GROUPS = 32
_RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Channels inside the blocks, blocks (Hara et al., CVPR 2018, table 1, ResNet-50)."""
_GENERATOR_CHANNELS = (512, 256, 128, 64)
_LEAST_SIZE = 75
"""The smallest image size that survives the five reductions."""
_SEVENS = (128, 160, 160, 192)
"""Channels inside the four blocks whose 7x7 convolutions are factorised."""
_STEM = 32
_MULTIPLE = 96
"""Divisor of the final filters: they are 6 of a normal cell's 24 parts, of which the first stem has a quarter."""
_BRANCH_SCALE, _SQUEEZED_SCALE = 0.6, 0.8
"""Scales of the last BatchNormalization of a separable convolution, and of one that begins a cell: so that a cell's
sums are no larger than its inputs."""


def resnext50_32x4d(seed: int, size: int = 224) -> onnx.ModelProto:
    """ResNeXt-50 32x4d (Xie et al., CVPR 2017): float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000]."""
    net = _PaperNet("resnext50_32x4d", seed)
    image = net.input("image", (1, 3, size, size))
    x = net.conv(image, 3, 64, kernel=(7, 7), strides=(2, 2), rectified=False)
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x, channels = net.bottlenecks(x, 64, _RESNEXT_STAGES, axes=2, expansion=2, group=_RESNEXT_GROUPS)
    return net.classified(x, channels, 1000)


def resnet3d_50(seed: int, frames: int = 16, size: int = 112) -> onnx.ModelProto:
    """3D-ResNet-50 (Hara et al., "Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?", CVPR
    2018): float32 ``video`` [1, 3, frames, size, size] to ``scores`` [1, 400].
    """
    net = _PaperNet("resnet3d_50", seed)
    video = net.input("video", (1, 3, frames, size, size))
    x = net.conv(video, 3, 64, kernel=(7, 7, 7), strides=(1, 2, 2), rectified=False)
    x = net.op("MaxPool", x, kernel_shape=[3, 3, 3], strides=[2, 2, 2], pads=[1, 1, 1, 1, 1, 1])
    x, channels = net.bottlenecks(x, 64, _RESNET_STAGES, axes=3, expansion=4)
    return net.classified(x, channels, 400)


def dcgan(seed: int, latent: int = 100) -> onnx.ModelProto:
    """The generator of DCGAN (Radford et al., ICLR 2016): ``noise`` [1, latent, 1, 1] to ``image`` [1, 3, 64, 64]."""
    net = _PaperNet("dcgan", seed)
    x, channels = net.input("noise", (1, latent, 1, 1)), latent
    for position, width in enumerate(_GENERATOR_CHANNELS):
        x = net.upsample(x, channels, width, first=position == 0)
        x = net.op("Relu", net.batchnorm(x, width, f"layers.{position}"))
        channels = width
    return net.model(net.op("Tanh", net.upsample(x, channels, 3), output="image"))


class _PaperNet(ConvNet):
    """A builder with the blocks of ResNeXt, 3D-ResNet-50 and DCGAN."""

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


def inception_v3(seed: int, size: int = 299) -> onnx.ModelProto:
    """Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016): float32
    ``image`` [1, 3, size, size] to ``scores`` [1, 1000]. Without the auxiliary classifier, only there for training.

    Raises:
        InputError: ``size`` is under 75.
    """
    if size < _LEAST_SIZE:
        raise InputError(f"network:inception_v3 has size={size}: its five reductions need at least {_LEAST_SIZE}")
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


@dataclass(frozen=True)
class Feature:
    """A tensor [1, channels, size, size]."""

    name: str
    channels: int
    size: int


def nasnet_a(seed: int, size: int = 224, cells: int = 4, filters: int = 1056) -> onnx.ModelProto:
    """NASNet-A (``cells`` @ ``filters``; Zoph et al., "Learning Transferable Architectures for Scalable Image
    Recognition", CVPR 2018): float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000].

    The defaults are the mobile network. ``cells`` is how many normal cells stand in a row, ``filters`` how many
    channels the last one has. Without the paper's auxiliary classifier, which is for training only.

    Raises:
        InputError: ``filters`` is no multiple of 96, or ``size`` is under 32.
    """
    if filters % _MULTIPLE:
        raise InputError(f"network:nasnet_a has filters={filters}: give a multiple of {_MULTIPLE}, as filters=1056")
    if size < 32:
        raise InputError(f"network:nasnet_a has size={size}: its five reductions need at least 32")
    net = _NasNet("nasnet_a", seed)
    width = filters // 24
    image = net.input("image", (1, 3, size, size))
    x = net.conv(image, 3, _STEM, kernel=(3, 3), strides=(2, 2), rectified=False, activation="", padded=False)
    before = here = Feature(x, _STEM, (size - 3) // 2 + 1)
    for stem in (width // 4, width // 2):
        before, here = here, net.reduction_cell(before, here, stem)
    for stage in range(3):
        if stage:
            before, here = here, net.reduction_cell(before, here, width << stage)
        for _ in range(cells):
            before, here = here, net.normal_cell(before, here, width << stage)
    return net.classified(net.op("Relu", here.name), here.channels, 1000)


class _NasNet(ConvNet):
    """A builder with the cells of NASNet-A (figure 4 of the paper).

    A cell takes the outputs of the two cells before it. The activations of its convolutions come first, as in the
    paper: where several read the same tensor, each has a Relu of its own.
    """

    def normal_cell(self, before: Feature, here: Feature, width: int) -> Feature:
        """A normal cell: preserves the size; its output has six parts of ``width`` channels."""
        p, h = self.fitted(before, here, width), self.squeezed(here, width)
        parts = [
            p.name,
            self.op("Add", self.separable(h, width, 5), self.separable(p, width, 3)),
            self.op("Add", self.separable(p, width, 5), self.separable(p, width, 3)),
            self.op("Add", self.pooled("AveragePool", h.name), p.name),
            self.op("Add", self.pooled("AveragePool", p.name), self.pooled("AveragePool", p.name)),
            self.op("Add", self.separable(h, width, 3), h.name),
        ]
        return Feature(self.op("Concat", *parts, axis=1), len(parts) * width, here.size)

    def reduction_cell(self, before: Feature, here: Feature, width: int) -> Feature:
        """A reduction cell: halves the size; its output has four parts of ``width`` channels."""
        p, h = self.fitted(before, here, width), self.squeezed(here, width)
        size = _halved(here.size)
        first = self.op("Add", self.separable(h, width, 5, 2), self.separable(p, width, 7, 2))
        second = self.op("Add", self.pooled("MaxPool", h.name, 2), self.separable(p, width, 7, 2))
        third = self.op("Add", self.pooled("AveragePool", h.name, 2), self.separable(p, width, 5, 2))
        fourth = self.op("Add", self.pooled("AveragePool", first), second)
        again = self.separable(Feature(first, width, size), width, 3)
        fifth = self.op("Add", again, self.pooled("MaxPool", h.name, 2))
        parts = (second, third, fourth, fifth)
        return Feature(self.op("Concat", *parts, axis=1), len(parts) * width, size)

    def fitted(self, before: Feature, here: Feature, width: int) -> Feature:
        """``before`` with the size of ``here`` and ``width`` channels; unchanged at the very first cell."""
        if before == here:
            return here
        return self.squeezed(before, width) if before.size == here.size else self.factorised(before, width)

    def squeezed(self, x: Feature, width: int) -> Feature:
        """``x`` with ``width`` channels."""
        y = self.conv(self.op("Relu", x.name), x.channels, width, kernel=(1, 1), activation="", scale=_SQUEEZED_SCALE)
        return Feature(y, width, x.size)

    def factorised(self, x: Feature, width: int) -> Feature:
        """``x`` in half its size: every other element, and those one further down and right, concatenated."""
        y = self.op("Relu", x.name)
        shifted = self.op("Pad", y, self.ints(0, 0, 0, 0, 0, 0, 1, 1))
        shifted = self.op("Slice", shifted, self.ints(1, 1), self.ints(x.size + 1, x.size + 1), self.ints(2, 3))
        halves = []
        for half, part in ((y, width // 2), (shifted, width - width // 2)):
            half = self.op("AveragePool", half, kernel_shape=[1, 1], strides=[2, 2])
            halves.append(self.filtered(half, x.channels, part, name=self.layer(), kernel=(1, 1)))
        y = self.batchnorm(self.op("Concat", *halves, axis=1), width, self.layer(), _SQUEEZED_SCALE)
        return Feature(y, width, _halved(x.size))

    def separable(self, x: Feature, width: int, extent: int, stride: int = 1) -> str:
        """A separable convolution, twice: within each channel, then across channels; ``stride`` in the first."""
        y, channels = x.name, x.channels
        for step, scale in ((stride, 1.0), (1, _BRANCH_SCALE)):
            y = self.filtered(
                self.op("Relu", y), channels, channels, name=self.layer(), kernel=(extent, extent),
                strides=(step, step), group=channels,
            )  # fmt: skip
            y = self.conv(y, channels, width, kernel=(1, 1), rectified=False, activation="", scale=scale)
            channels = width
        return y

    def pooled(self, op_type: str, x: str, stride: int = 1) -> str:
        return self.op(op_type, x, kernel_shape=[3, 3], strides=[stride, stride], pads=[1, 1, 1, 1])


def _halved(size: int) -> int:
    return (size + 1) // 2


NETWORKS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "densenet121": partial(zoo_model, "densenet121"),
    "inception_v1": partial(zoo_model, "inception_v1"),
    "inception_v3": inception_v3,
    "resnext50_32x4d": resnext50_32x4d,
    "resnet3d_50": resnet3d_50,
    "nasnet_a": nasnet_a,
    "dcgan": dcgan,
}


def make_network(source: str, seed: int = 0) -> onnx.ModelProto:
    """The network of `network:NAME?key=value`, with random weights."""
    name, _, query = source.removeprefix(PREFIX).partition("?")
    return NETWORKS[name](seed=seed, **{key: int(value) for key, value in parse_qsl(query)})


def model_source(source: str) -> str:
    """What a configuration names as its model: a network's file in the system's temporary folder, or `source`."""
    if not source.startswith(PREFIX):
        return source
    path = Path(tempfile.gettempdir(), "collage_evo-networks", f"{source.removeprefix(PREFIX)}.onnx")
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        save_model(make_network(source), path)
    return str(path)
