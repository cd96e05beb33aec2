"""Writes a model that is not built in: a residual network with grouped convolutions, made with onnx.helper.

    python benchmarks/make_model.py grouped.onnx
    python -m collage_evo run grouped.onnx
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, GROUPS, BLOCKS, SIZE = 128, 8, 6, 28


def make_model() -> onnx.ModelProto:
    """Stem, six residual blocks of 1x1, grouped 3x3 and 1x1 convolutions, pooling and a classifier; opset 18."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) or 1
        array = rng.standard_normal(shape).astype(np.float32) * np.float32(np.sqrt(1.5 / fan_in))
        weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(source: str, name: str, out: int, into: int, kernel: int, groups: int = 1) -> str:
        pad = kernel // 2
        given = [source, weight(f"{name}.w", out, into // groups, kernel, kernel), weight(f"{name}.b", out)]
        shape: dict[str, Any] = {"kernel_shape": [kernel] * 2, "pads": [pad] * 4, "group": groups}
        nodes.append(helper.make_node("Conv", given, [name], name=name, **shape))
        return name

    def op(kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    value = op("Relu", "stem.relu", conv("image", "stem", CHANNELS, 3, 3))
    for block in range(BLOCKS):
        at = f"block{block}"
        inner = op("Relu", f"{at}.relu1", conv(value, f"{at}.reduce", CHANNELS, CHANNELS, 1))
        inner = op("Relu", f"{at}.relu2", conv(inner, f"{at}.grouped", CHANNELS, CHANNELS, 3, GROUPS))
        inner = conv(inner, f"{at}.expand", CHANNELS, CHANNELS, 1)
        value = op("Relu", f"{at}.relu3", op("Add", f"{at}.add", inner, value))
    flat = op("Flatten", "flat", op("GlobalAveragePool", "pool", value))
    op("Gemm", "scores", flat, weight("fc.w", 100, CHANNELS), weight("fc.b", 100), transB=1)
    graph = helper.make_graph(
        nodes,
        "grouped",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 100])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


if __name__ == "__main__":
    onnx.save(make_model(), sys.argv[1])
