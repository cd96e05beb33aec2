"""Small ONNX models for tests."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from collage_evo.models.builder import Builder
from collage_evo.testing.models import TinyNet


def parse_graph(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """The model of a graph in ONNX's text format: ``g (float[4] x) => (float[4] y) { y = Neg(x) }``."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {text}')


def tiny_branchy(seed: int = 0) -> onnx.ModelProto:
    """``x`` [1, 4, 8, 8] to ``y`` [1, 14, 8, 8]: three branches as in Inception, joined by Concat."""
    net = TinyNet("tiny_branchy", seed)
    x = net.op("Relu", net.conv(net.input("x", (1, 4, 8, 8)), 4, 8))
    one = net.op("Relu", net.conv(x, 8, 4, kernel=1))
    three = net.op("Relu", net.conv(net.op("Relu", net.conv(x, 8, 4, kernel=1)), 4, 6))
    pooled = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    pooled = net.op("Relu", net.conv(pooled, 8, 4, kernel=1))
    return net.model(net.op("Concat", one, three, pooled, axis=1, output="y"))


def random_dag(seed: int, n: int) -> onnx.ModelProto:
    """A random model of ``n`` elementwise operators on float [2, 3] tensors, with one to three inputs.

    Every tensor that nothing reads is an output, and at times one that is read as well.
    """
    rng = np.random.default_rng(seed)
    net = Builder("random_dag")
    tensors = [net.input(f"x{k}", (2, 3)) for k in range(int(rng.integers(1, 4)))]
    first = len(tensors)
    read: set[str] = set()
    for _ in range(n):
        # Recent tensors are likelier, which gives depth.
        reach = int(rng.integers(1, len(tensors) + 1))
        left, right = (tensors[-int(rng.integers(1, reach + 1))] for _ in range(2))
        op_type = str(rng.choice(["Add", "Mul", "Max", "Relu", "Tanh", "Scale", "Split"]))
        read.add(left)
        if op_type in {"Relu", "Tanh"}:
            tensors.append(net.op(op_type, left))
        elif op_type == "Scale":
            tensors.append(net.op("Mul", left, net.const(rng.standard_normal((1, 3)).astype(np.float32))))
        elif op_type == "Split":
            upper, lower = net.ops("Split", left, outputs=2, axis=0, num_outputs=2)
            tensors.append(net.op("Concat", lower, upper, axis=0))
        else:
            read.add(right)
            # Tanh bounds the product, so that depth cannot overflow.
            tensors.append(net.op("Tanh", net.op(op_type, left, right)))
    made = tensors[first:]
    outputs = [name for name in made if name not in read or rng.random() < 0.1]
    return net.model(*outputs)
