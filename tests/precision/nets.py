"""Small graphs with one operator or block to quantise, and what rounding does to arrays, in plain NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.quantise.rules import Ranges


def weights(b: Builder, *shape: int) -> str:
    # Channels of unlike size: one scale for all of them would show.
    sizes = np.geomspace(0.1, 1, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return b.const((np.random.default_rng(len(shape)).standard_normal(shape) * sizes).astype(np.float32))


def convolution(b: Builder, x: str, made: int, read: int, group: int = 1, output: str = "") -> str:
    kernel, bias = weights(b, made, read // group, 3, 3), weights(b, made)
    return b.op("Conv", x, kernel, bias, pads=[1, 1, 1, 1], group=group, output=output)


def conv(b: Builder) -> str:
    return convolution(b, b.input("x", (1, 8, 6, 6)), 16, 8)


def conv_without_bias(b: Builder) -> str:
    return b.op("Conv", b.input("x", (1, 8, 6, 6)), weights(b, 16, 8, 1, 1))


def conv_depthwise(b: Builder) -> str:
    return convolution(b, b.input("x", (1, 16, 6, 6)), 16, 16, group=16)


def conv_transpose(b: Builder) -> str:
    x = b.input("x", (1, 8, 6, 6))
    return b.op("ConvTranspose", x, weights(b, 8, 16, 2, 2), weights(b, 16), strides=[2, 2])


def gemm(b: Builder) -> str:
    return b.op("Gemm", b.input("x", (4, 16)), weights(b, 8, 16), weights(b, 8), transB=1)


def matmul(b: Builder) -> str:
    return b.op("MatMul", b.input("x", (1, 4, 16)), weights(b, 16, 8))


def attention(b: Builder) -> str:
    return b.op("MatMul", b.input("x", (1, 2, 8, 4)), b.input("z", (1, 2, 4, 8)))


def attention_block(b: Builder) -> str:
    return b.op("MatMul", b.op("Softmax", attention(b), axis=-1), b.input("v", (1, 2, 8, 4)))


def conv_relu(b: Builder) -> str:
    return b.op("Relu", conv(b))


def conv_add_relu(b: Builder) -> str:
    x = b.input("x", (1, 16, 6, 6))
    return b.op("Relu", b.op("Add", convolution(b, x, 16, 16), x))


def concat(b: Builder) -> str:
    x, z = b.input("x", (1, 8, 6, 6)), b.input("z", (1, 8, 6, 6))
    return convolution(b, b.op("Concat", convolution(b, x, 8, 8), b.op("Relu", z), axis=1), 8, 16)


def max_pool(b: Builder) -> str:
    return convolution(b, b.op("MaxPool", b.op("Relu", conv(b)), kernel_shape=[2, 2], strides=[2, 2]), 8, 16)


def net(make: Callable[[Builder], str]) -> Graph:
    b = Builder(make.__name__)
    return build_graph(b.model(make(b)))


def ranges_of(graph: Graph) -> Ranges:
    return calibrate(graph, [random_inputs(graph, seed) for seed in range(3)])


def rounded(array: np.ndarray, least: float, greatest: float) -> np.ndarray:
    """``array`` there and back through uint8 over a range that holds zero."""
    scale = np.float32((greatest - least) / 255)
    zero = np.rint(-least / scale)
    return ((np.clip(np.rint(array / scale) + zero, 0, 255) - zero) * scale).astype(np.float32)


def rounded_weights(array: np.ndarray, axis: int, scales: np.ndarray | None = None) -> np.ndarray:
    """``array`` there and back through int8, one symmetric scale for each index of ``axis``: by default of 8 bits."""
    moved = np.moveaxis(array, axis, 0)
    scales = np.abs(moved.reshape(len(moved), -1)).max(axis=1) / 127 if scales is None else scales
    scale = scales.reshape(-1, *[1] * (array.ndim - 1))
    return np.moveaxis(np.rint(moved / scale) * scale, 0, axis).astype(np.float32)


def ticking(step: int = 1) -> Callable[[], float]:
    """A clock that is ``step`` seconds further each time somebody looks."""
    return partial(next, itertools.count(0, step))
