"""MobileNet v2 and a BERT encoder written operator by operator, as exporters write them at opset 18."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.errors import InputError
from collage_evo.graph.builder import Builder
from collage_evo.graph.weights import BATCHNORM_PARTS, batchnorm_part, generator, layer_weight, normal

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


def mobilenet_v2(seed: int, size: int = 224) -> onnx.ModelProto:
    """MobileNet v2, width 1.0: float32 ``image`` [1, 3, size, size] to ``scores`` [1, 1000]."""
    net = _ConvNet("mobilenet_v2", seed)
    x = net.conv(net.input("image", (1, 3, size, size)), 3, 32, kernel=3, stride=2, rectified=False)
    channels = 32
    for expansion, width, repeats, first_stride in _MOBILENET_STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x = net.inverted_residual(x, channels, width, stride, expansion)
            channels = width
    x = net.conv(x, channels, 1280, kernel=1, rectified=False)
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    weight = net.weight("classifier.weight", (1000, 1280), 1280, rectified=False)
    bias = net.const(normal(generator(seed, "classifier.bias"), (1000,), 0.05), "classifier.bias")
    return net.model(net.op("Gemm", x, weight, bias, name="classifier", output="scores", transB=1))


class _ConvNet(Builder):
    """A builder with the layers of a convolutional network."""

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
        kernel: int,
        rectified: bool,
        stride: int = 1,
        group: int = 1,
        clip: bool = True,
        scale: float = 1.0,
    ) -> str:
        """Convolution, BatchNormalization and, if ``clip``, ReLU6."""
        name = f"features.{self._layers}"
        self._layers += 1
        fan_in = channels // group * kernel * kernel
        weight = self.weight(f"{name}.weight", (width, channels // group, kernel, kernel), fan_in, rectified)
        half = kernel // 2
        x = self.op(
            "Conv", x, weight, name=f"{name}.conv", kernel_shape=[kernel] * 2, strides=[stride] * 2,
            pads=[half] * 4, dilations=[1, 1], group=group,
        )  # fmt: skip
        parts = [
            self.const(
                batchnorm_part(generator(self._seed, f"{name}.{part}"), part, width, scale), f"{name}.{part}"
            )
            for part in BATCHNORM_PARTS
        ]
        x = self.op("BatchNormalization", x, *parts, name=f"{name}.bn", epsilon=1e-5)
        if not clip:
            return x
        low, high = self.const(np.array(0, np.float32)), self.const(np.array(6, np.float32))
        return self.op("Clip", x, low, high, name=f"{name}.relu6")

    def inverted_residual(self, x: str, channels: int, width: int, stride: int, expansion: int) -> str:
        """Expand, depthwise convolution, project; added to ``x`` where the shapes allow it."""
        hidden, y = channels * expansion, x
        if expansion != 1:
            y = self.conv(y, channels, hidden, kernel=1, rectified=False)
        y = self.conv(y, hidden, hidden, kernel=3, stride=stride, group=hidden, rectified=True)
        residual = stride == 1 and channels == width
        scale = 0.4 if residual else 1.0
        y = self.conv(y, hidden, width, kernel=1, clip=False, scale=scale, rectified=True)
        return self.op("Add", x, y) if residual else y


def bert(
    seed: int,
    layers: int = 12,
    length: int = 128,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
) -> onnx.ModelProto:
    """A BERT encoder (Devlin et al., NAACL 2019): token ids to hidden states.

    Inputs are int64 ``input_ids`` and ``attention_mask`` [1, length]; outputs are float32
    ``last_hidden_state`` [1, length, hidden] and ``pooled`` [1, hidden]. ``length`` is at most 512.

    Raises:
        InputError: ``hidden`` is no multiple of ``heads``, or ``length`` is over 512.
    """
    if hidden % heads:
        raise InputError(f"builtin:bert: heads={heads} does not divide hidden={hidden}: choose another")
    if length > 512:
        raise InputError(f"builtin:bert has length={length}: position embeddings end at 512, choose less")
    net = _Transformer(seed, length, hidden, heads)
    ids = net.input("input_ids", (1, length), TensorProto.INT64)
    mask = net.input("attention_mask", (1, length), TensorProto.INT64)
    x = net.embed(ids, vocabulary)
    bias = net.mask_bias(mask)
    for layer in range(layers):
        x = net.encoder(x, bias, f"layer.{layer}")
    first = net.op("Gather", x, net.const(np.array(0, np.int64)), axis=1)
    pooled = net.op("Gemm", first, *net.parameters("pooler", hidden, hidden), name="pooler")
    x = net.op("Identity", x, output="last_hidden_state")
    return net.model(x, net.op("Tanh", pooled, output="pooled"))


class _Transformer(Builder):
    """A builder with the layers of a BERT encoder; every activation is [1, length, hidden]."""

    def __init__(self, seed: int, length: int, hidden: int, heads: int) -> None:
        super().__init__("bert")
        self._seed, self._length, self._hidden, self._heads = seed, length, hidden, heads

    def parameters(self, name: str, wide: int, out: int) -> tuple[str, str]:
        """Weight [wide, out] and bias [out] of a linear layer."""
        weight = layer_weight(generator(self._seed, f"{name}.weight"), (wide, out), wide, rectified=False)
        bias = normal(generator(self._seed, f"{name}.bias"), (out,), 0.05)
        return self.const(weight, f"{name}.weight"), self.const(bias, f"{name}.bias")

    def embed(self, ids: str, vocabulary: int) -> str:
        """Token plus position plus type embeddings, normalised."""

        def table(name: str, rows: int) -> str:
            return self.const(normal(generator(self._seed, name), (rows, self._hidden), 1.0), name)

        position = self.const(np.arange(self._length, dtype=np.int64)[None], "position_ids")
        types = self.const(np.zeros((1, self._length), np.int64), "token_type_ids")
        x = self.op("Gather", table("embeddings.word", vocabulary), ids)
        x = self.op("Add", x, self.op("Gather", table("embeddings.type", 2), types))
        x = self.op("Add", x, self.op("Gather", table("embeddings.position", 512), position))
        return self.norm(x, "embeddings.norm")

    def mask_bias(self, mask: str) -> str:
        """0 where a token counts and the least float32 where it does not, [1, 1, 1, length]."""
        x = self.op("Cast", self.op("Unsqueeze", mask, self.ints(1, 2)), to=TensorProto.FLOAT)
        x = self.op("Sub", self.const(np.array(1, np.float32)), x)
        return self.op("Mul", x, self.const(np.array(np.finfo(np.float32).min)))

    def norm(self, x: str, name: str) -> str:
        scale = self.const(batchnorm_part(generator(self._seed, f"{name}.scale"), "scale", self._hidden))
        bias = self.const(batchnorm_part(generator(self._seed, f"{name}.bias"), "bias", self._hidden))
        return self.op("LayerNormalization", x, scale, bias, name=name, axis=-1, epsilon=1e-12)

    def linear(self, x: str, name: str, wide: int, out: int) -> str:
        weight, bias = self.parameters(name, wide, out)
        return self.op("Add", self.op("MatMul", x, weight, name=f"{name}.matmul"), bias, name=f"{name}.add")

    def attention(self, x: str, bias: str, name: str) -> str:
        """Multi-head self-attention without its output's residual sum."""
        hidden, heads, length = self._hidden, self._heads, self._length
        split = self.ints(1, length, heads, hidden // heads)

        def projected(part: str, perm: list[int]) -> str:
            y = self.linear(x, f"{name}.{part}", hidden, hidden)
            return self.op("Transpose", self.op("Reshape", y, split), perm=perm)

        query, key = projected("query", [0, 2, 1, 3]), projected("key", [0, 2, 3, 1])
        root = self.const(np.array(math.sqrt(hidden // heads), np.float32))
        scores = self.op("Div", self.op("MatMul", query, key), root)
        weights = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        mixed = self.op("MatMul", weights, projected("value", [0, 2, 1, 3]))
        mixed = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.op("Reshape", mixed, self.ints(1, length, hidden))
        return self.linear(joined, f"{name}.output", hidden, hidden)

    def gelu(self, x: str) -> str:
        """x / 2 * (1 + erf(x / sqrt 2)), spelled out: opset 18 has no Gelu."""
        root, one, half = (self.const(np.array(v, np.float32)) for v in (math.sqrt(2), 1, 0.5))
        erf = self.op("Erf", self.op("Div", x, root))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, one)), half)

    def encoder(self, x: str, bias: str, name: str) -> str:
        """One layer: attention, then a feed-forward pair four times as wide."""
        hidden = self._hidden
        y = self.attention(x, bias, f"{name}.attention")
        x = self.norm(self.op("Add", y, x), f"{name}.attention.norm")
        y = self.gelu(self.linear(x, f"{name}.intermediate", hidden, 4 * hidden))
        y = self.linear(y, f"{name}.output", 4 * hidden, hidden)
        return self.norm(self.op("Add", y, x), f"{name}.output.norm")
