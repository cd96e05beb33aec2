"""Two-tower recommender, written operator by operator, as exporters write it at opset 18."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.models.builder import Builder
from collage_evo.models.weights import generator, layer_weight, normal

_IDS, _ROWS, _EMBEDDED = 32, 50_000, 64
"""Ids of a sample, rows of a table of embeddings, and their length."""
_FEATURES = 256
_TOGETHER = 128
"""Length of the vectors that two towers meet in."""


def two_tower(seed: int, batch: int = 1, layers: int = 4, width: int = 1024) -> onnx.ModelProto:
    """A recommender whose towers share nothing until their end (Yi et al., "Sampling-Bias-Corrected Neural Modeling
    for Large Corpus Item Recommendations", RecSys 2019): float32 ``scores`` [batch, 1] of users and items.

    Each tower has int64 ids [batch, 32], whose embeddings are averaged, and float32 features [batch, 256]:
    ``user_ids``, ``user_features``, ``item_ids``, ``item_features``. ``layers`` of ``width`` follow in each.
    """
    net = _TwoTower("two_tower", seed)
    user, item = (net.tower(side, batch, layers, width) for side in ("user", "item"))
    scores = net.op("ReduceSum", net.op("Mul", user, item), net.ints(1), keepdims=1, output="scores")
    return net.model(scores)


class _TwoTower(Builder):
    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name)
        self._seed = seed

    def tower(self, side: str, batch: int, layers: int, width: int) -> str:
        """Vectors [batch, 128] of one ``side``."""
        ids = self.input(f"{side}_ids", (batch, _IDS), TensorProto.INT64)
        features = self.input(f"{side}_features", (batch, _FEATURES))
        # The mean of so many embeddings is that much smaller than one of them.
        table = normal(generator(self._seed, f"{side}.embeddings"), (_ROWS, _EMBEDDED), float(np.sqrt(_IDS)))
        embedded = self.op("Gather", self.const(table, f"{side}.embeddings"), ids, axis=0)
        x = self.op("Concat", self.op("ReduceMean", embedded, self.ints(1), keepdims=0), features, axis=1)
        channels = _EMBEDDED + _FEATURES
        for layer in range(layers):
            x = self.op("Relu", self.dense(x, f"{side}.{layer}", channels, width, rectified=layer > 0))
            channels = width
        return self.dense(x, f"{side}.last", channels, _TOGETHER, rectified=True)

    def dense(self, x: str, name: str, wide: int, out: int, rectified: bool) -> str:
        """A linear layer, [batch, wide] to [batch, out]."""
        weight = layer_weight(generator(self._seed, f"{name}.weight"), (out, wide), wide, rectified)
        bias = normal(generator(self._seed, f"{name}.bias"), (out,), 0.05)
        both = self.const(weight, f"{name}.weight"), self.const(bias, f"{name}.bias")
        return self.op("Gemm", x, *both, name=name, transB=1)
