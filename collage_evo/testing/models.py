"""Tiny ONNX models for tests: built in memory, run in microseconds, deterministic."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.models.builder import Builder
from collage_evo.models.weights import BATCHNORM_PARTS, batchnorm_part, layer_weight, normal


class TinyNet(Builder):
    """A builder with its own random stream."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name)
        self.rng = np.random.default_rng(seed)

    def conv(self, x: str, channels: int, width: int, kernel: int = 3, stride: int = 1) -> str:
        shape = (width, channels, kernel, kernel)
        weight = self.const(layer_weight(self.rng, shape, channels * kernel * kernel, rectified=True))
        bias = self.const(normal(self.rng, (width,), 0.1))
        return self.op(
            "Conv", x, weight, bias, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2
        )

    def batchnorm(self, x: str, channels: int) -> str:
        parts = [self.const(batchnorm_part(self.rng, part, channels)) for part in BATCHNORM_PARTS]
        return self.op("BatchNormalization", x, *parts)

    def linear(self, x: str, wide: int, out: int) -> str:
        weight = self.const(layer_weight(self.rng, (wide, out), wide, rectified=False))
        return self.op("Add", self.op("MatMul", x, weight), self.const(normal(self.rng, (out,), 0.1)))


def tiny_convnet(seed: int = 0) -> onnx.ModelProto:
    """``x`` [1, 3, 16, 16] to ``y`` [1, 10]: Conv, BatchNormalization, residual Add, pools, Gemm, Softmax."""
    net = TinyNet("tiny_convnet", seed)
    x = net.op("Relu", net.batchnorm(net.conv(net.input("x", (1, 3, 16, 16)), 3, 8), 8))
    y = net.op("Relu", net.batchnorm(net.conv(x, 8, 8), 8))
    y = net.batchnorm(net.conv(y, 8, 8), 8)
    y = net.op("Relu", net.op("Add", y, x))
    y = net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("Flatten", net.op("GlobalAveragePool", y), axis=1)
    weight = net.const(layer_weight(net.rng, (10, 8), 8, rectified=True))
    y = net.op("Gemm", y, weight, net.const(normal(net.rng, (10,), 0.1)), transB=1)
    return net.model(net.op("Softmax", y, axis=-1, output="y"))


def tiny_transformer(
    seed: int = 0, length: int = 8, hidden: int = 16, vocabulary: int = 50
) -> onnx.ModelProto:
    """int64 ``ids`` [1, length] to ``y`` [1, length, hidden]: embedding and one block with a single head."""
    net = TinyNet("tiny_transformer", seed)
    table = net.const(normal(net.rng, (vocabulary, hidden), 1.0))
    x = net.op("Gather", table, net.input("ids", (1, length), TensorProto.INT64))
    query, key, value = (net.linear(x, hidden, hidden) for _ in range(3))
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 2, 1]))
    scores = net.op("Mul", scores, net.const(np.array(hidden**-0.5, np.float32)))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
    x = _norm(net, net.op("Add", net.linear(mixed, hidden, hidden), x), hidden)
    inner = net.op("Relu", net.linear(x, hidden, 4 * hidden))
    y = net.op("Add", net.linear(inner, 4 * hidden, hidden), x)
    return net.model(_norm(net, y, hidden, output="y"))


def _norm(net: TinyNet, x: str, hidden: int, output: str = "") -> str:
    scale = net.const(batchnorm_part(net.rng, "scale", hidden))
    bias = net.const(batchnorm_part(net.rng, "bias", hidden))
    return net.op("LayerNormalization", x, scale, bias, axis=-1, output=output)


def chain(n: int, channels: int = 4, size: int = 8, seed: int = 0) -> onnx.ModelProto:
    """``x`` to ``y``, both [1, channels, size, size]: ``n`` equal Conv and Relu, but for the weights."""
    net = TinyNet("chain", seed)
    x = net.input("x", (1, channels, size, size))
    for step in range(n):
        x = net.op("Relu", net.conv(x, channels, channels), output="y" if step == n - 1 else "")
    return net.model(x)
