"""Tasks with random weights and random inputs: what counts is time at an error, not what is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from collage_evo.models.builder import Builder
from collage_evo.models.builtin import make_builtin
from collage_evo.models.weights import BATCHNORM_PARTS, batchnorm_part, generator, layer_weight
from contest.task import Arrays, Task, write_task

STAGES = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip
"""Expansion, channels, repeats, first stride, kernel (Tan and Le, "EfficientNet", ICML 2019, table 1)."""
TOKENS = 30000


def make_random(source: str, task: Task, samples: int, held_out: int) -> None:
    """A built-in model, or ``efficientnet``, on standard normal floats and uniform token numbers."""
    model = efficientnet() if source == "efficientnet" else make_builtin(source, seed=0)[1]

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        return {value.name: _drawn(value, count, rng) for value in model.graph.input}

    write_task(task, model, draw(samples, 1), draw(held_out, 2))


def _drawn(value: onnx.ValueInfoProto, count: int, rng: np.random.Generator) -> np.ndarray:
    tensor = value.type.tensor_type
    shape = (count, *(dim.dim_value for dim in tensor.shape.dim))
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    if "mask" in value.name:
        return np.ones(shape, dtype)
    # Which sentence a token is of: one of two.
    return rng.integers(0, 2 if "type" in value.name else TOKENS, shape).astype(dtype)


def efficientnet(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """EfficientNet-B0 with random weights: float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000]."""
    net = _EfficientNet(seed)
    x, channels = net.conv(net.input("image", (1, 3, size, size)), 3, 32, 3, stride=2), 32
    for expansion, width, repeats, first, kernel in STAGES:
        for repeat in range(repeats):
            stride = first if repeat == 0 else 1
            x = net.block(x, channels, width, expansion, kernel, stride)
            channels = width
    x = net.conv(x, channels, 1280, 1)
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weight, bias = net.weight((1000, 1280), 1280), net.const(np.zeros(1000, np.float32))
    return net.model(net.op("Gemm", x, weight, bias, output="scores", transB=1))


class _EfficientNet(Builder):
    def __init__(self, seed: int) -> None:
        super().__init__("efficientnet")
        self._seed, self._made = seed, 0

    def weight(self, shape: tuple[int, ...], fan_in: int) -> str:
        # Swish lets about as much of its input's second moment through as Relu.
        return self.const(layer_weight(self._generator("weight"), shape, fan_in, rectified=True))

    def conv(self, x: str, channels: int, width: int, kernel: int, **how: Any) -> str:
        """Convolution that keeps the size but for its ``stride``, BatchNormalization, Swish if ``active``."""
        stride, group = how.get("stride", 1), how.get("group", 1)
        weight = self.weight((width, channels // group, kernel, kernel), channels // group * kernel * kernel)
        x = self.op(
            "Conv", x, weight, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group
        )
        parts = (self._part(part, width, how.get("scale", 1.0)) for part in BATCHNORM_PARTS)
        x = self.op("BatchNormalization", x, *map(self.const, parts), epsilon=1e-3)
        return self.swish(x) if how.get("active", True) else x

    def swish(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def block(self, x: str, channels: int, width: int, expansion: int, kernel: int, stride: int) -> str:
        """Expand, depthwise convolution, squeeze and excite, project; added to ``x`` where the shapes allow it."""
        hidden = channels * expansion
        y = self.conv(x, channels, hidden, 1) if expansion != 1 else x
        y = self.conv(y, hidden, hidden, kernel, stride=stride, group=hidden)
        y = self.op("Mul", y, self.gates(y, hidden, channels // 4))
        residual = stride == 1 and channels == width
        y = self.conv(y, hidden, width, 1, active=False, scale=0.4 if residual else 1.0)
        return self.op("Add", x, y) if residual else y

    def gates(self, y: str, hidden: int, squeezed: int) -> str:
        """A factor from 0 to 1 for each channel."""
        z = self.op("GlobalAveragePool", y)
        z = self.swish(self.biased(z, hidden, squeezed))
        return self.op("Sigmoid", self.biased(z, squeezed, hidden))

    def biased(self, x: str, channels: int, width: int) -> str:
        bias = self.const(np.zeros(width, np.float32))
        return self.op("Conv", x, self.weight((width, channels, 1, 1), channels), bias, kernel_shape=[1, 1])

    def _part(self, part: str, width: int, scale: float) -> np.ndarray:
        return batchnorm_part(self._generator(part), part, width, scale)

    def _generator(self, kind: str) -> np.random.Generator:
        self._made += 1
        return generator(self._seed, f"{kind}.{self._made}")
