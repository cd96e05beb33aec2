"""BERT encoder written operator by operator, as exporters write it at opset 18."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.errors import InputError
from collage_evo.models.builder import Builder
from collage_evo.models.weights import batchnorm_part, generator, layer_weight, normal


def bert(
    seed: int, layers: int = 12, length: int = 128, hidden: int = 768, heads: int = 12, vocabulary: int = 30522
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
