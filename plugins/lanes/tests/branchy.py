"""Models with branches, made from a seed: what lanes are cut from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx

from collage_evo.models.builder import Builder


class BranchyNet(Builder):
    """A builder of layers on feature maps [1, channels, size, size]; the names that it gives are tensors'."""

    def __init__(self, seed: int, size: int = 28) -> None:
        super().__init__("branchy")
        self.values = np.random.default_rng(seed)
        self.size = size
        self.channels: dict[str, int] = {}

    def image(self, name: str, channels: int, batch: int = 1) -> str:
        self.channels[name] = channels
        return self.input(name, (batch, channels, self.size, self.size))

    def conv(self, x: str, width: int, kernel: int = 1) -> str:
        shape = (width, self.channels[x], kernel, kernel)
        weight = self.const(self.values.normal(0, shape[1] ** -0.5 / kernel, shape).astype(np.float32))
        y = self.op("Conv", x, weight, pads=[kernel // 2] * 4, kernel_shape=[kernel] * 2)
        self.channels[y] = width
        return y

    def same(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        y = self.op(op_type, *inputs, **attributes)
        self.channels[y] = self.channels[inputs[0]]
        return y

    def joined(self, *inputs: str) -> str:
        y = self.op("Concat", *inputs, axis=1)
        self.channels[y] = sum(self.channels[x] for x in inputs)
        return y

    def halves(self, x: str) -> list[str]:
        made = self.ops("Split", x, outputs=2, axis=1, num_outputs=2)
        width = -(-self.channels[x] // 2)
        self.channels.update(zip(made, (width, self.channels[x] - width), strict=True))
        return made

    def inception(self, x: str, width: int) -> str:
        """Four branches: one convolution, two with a smaller one before them, a pooled one; the second is as much as
        all others."""
        first = self.same("Relu", self.conv(x, width))
        second = self.same("Relu", self.conv(self.conv(x, width), width, 3))
        third = self.same("Relu", self.conv(self.conv(x, width // 4), width // 2, 5))
        pooled = self.same("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
        return self.joined(first, second, third, self.same("Relu", self.conv(pooled, width // 2)))


def inception(blocks: int = 1, batch: int = 1, size: int = 28, width: int = 64) -> onnx.ModelProto:
    """``blocks`` inception blocks in a row, nothing before and after them."""
    net = BranchyNet(0, size)
    x = net.image("x", 128, batch)
    for _ in range(blocks):
        x = net.inception(x, width)
    return net.model(x)


def towers(width: int = 512, depth: int = 3) -> onnx.ModelProto:
    """A recommender: a user's and an item's features, each through products of their own, and their similarity."""
    net = BranchyNet(0)
    ends = []
    for name in ("user", "item"):
        x = net.input(name, (1, width))
        for _ in range(depth):
            weight = net.const(net.values.normal(0, width**-0.5, (width, width)).astype(np.float32))
            x = net.op("Relu", net.op("MatMul", x, weight))
        ends.append(x)
    return net.model(net.op("ReduceSum", net.op("Mul", *ends), net.ints(1)))


def random_net(rng: random.Random, count: int, batch: int = 1, width: int = 1000) -> onnx.ModelProto:
    """``count`` operators, each of which reads what any before it made; what nobody reads is an output.

    Where more than ``width`` tensors wait to be read, one of them is, and only what was made lately.
    """
    net = BranchyNet(rng.randrange(1 << 30), rng.choice((14, 28)))
    made = [net.image("x", 64, batch), net.image("y", 48, batch)]
    unread: dict[str, None] = {}
    for _ in range(count):
        a, b = rng.choice(made[-width:]), rng.choice(made[-width:])
        if len(unread) > width:
            a = next(iter(unread))
        kind = rng.choice(("conv", "conv", "relu", "add", "join", "join", "halves"))
        read = (a, b) if kind in ("add", "join") else (a,)
        if kind == "conv":
            new = [net.conv(a, rng.choice((16, 48, 64)), rng.choice((1, 3, 5)))]
        elif kind == "add" and net.channels[a] == net.channels[b]:
            new = [net.same("Add", a, b)]
        elif kind == "join" and net.channels[a] + net.channels[b] < 256:
            new = [net.joined(a, b)]
        elif kind == "halves" and net.channels[a] > 8:
            new = net.halves(a)
        else:
            new, read = [net.same("Relu", a)], (a,)
        made += new
        unread = {name: None for name in (*unread, *new) if name not in read}
    return net.model(*unread)
