"""Small ONNX models for tests and benchmarks: built in memory, run in microseconds, deterministic."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
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


def open_rows(batch: int | None = None) -> onnx.ModelProto:
    """``x`` float [batch, length, 8] to ``y`` [batch, length, 4]: two products, the second one of rows whose shape is
    computed; of this ``batch`` alone, if it is given."""
    net, rng = Builder("open_rows"), np.random.default_rng(7)

    def weight(*shape: int) -> str:
        return net.const(rng.normal(0, 0.4, shape).astype(np.float32))

    x = net.input("x", ("batch", "length", 8))
    hidden = net.op("Relu", net.op("MatMul", x, weight(8, 8)))
    shape = net.op("Shape", hidden)
    batched, length = (net.op("Gather", shape, net.const(np.array([axis])), axis=0) for axis in (0, 1))
    count = net.op("Mul", batched, length)
    rows = net.op("Reshape", hidden, net.op("Concat", count, net.const(np.array([8])), axis=0))
    y = net.op("MatMul", net.op("Add", rows, weight(8)), weight(8, 4))
    first = batched if batch is None else net.const(np.array([batch]))
    sizes = net.op("Concat", first, length, net.const(np.array([4])), axis=0)
    return net.model(net.op("Reshape", y, sizes, output="y"))
