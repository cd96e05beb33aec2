"""NASNet-A, whose cells come from a search, written operator by operator, as exporters write it at opset 18."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from collage_evo.errors import InputError
from collage_evo.models.convnets import ConvNet

_STEM = 32
_MULTIPLE = 96
"""Divisor of the final filters: they are 6 of a normal cell's 24 parts, of which the first stem has a quarter."""
_BRANCH_SCALE, _SQUEEZED_SCALE = 0.6, 0.8
"""Scales of the last BatchNormalization of a separable convolution, and of one that begins a cell: so that a cell's
sums are no larger than its inputs."""


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
        raise InputError(f"builtin:nasnet_a has filters={filters}: give a multiple of {_MULTIPLE}, as filters=1056")
    if size < 32:
        raise InputError(f"builtin:nasnet_a has size={size}: its five reductions need at least 32")
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
        for given, part in ((y, width // 2), (shifted, width - width // 2)):
            given = self.op("AveragePool", given, kernel_shape=[1, 1], strides=[2, 2])
            halves.append(self.filtered(given, x.channels, part, name=self.layer(), kernel=(1, 1)))
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
