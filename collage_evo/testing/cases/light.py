"""Pools, elementwise operators, normalisations and changes of shape, each alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import also_behind_conv, case, image, weight


@also_behind_conv
@case
def max_pool(b: Builder) -> str:
    return b.op("MaxPool", image(b), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


@case
def max_pool_asymmetric(b: Builder) -> str:
    return b.op("MaxPool", image(b), kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])


@case
def max_pool_ceil(b: Builder) -> str:
    x = image(b, 8, 14, 14)
    return b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


@case
def max_pool_ceil_pads(b: Builder) -> str:
    x = image(b, 8, 14, 14)
    return b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)


@case
def average_pool(b: Builder) -> str:
    return b.op("AveragePool", image(b), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


@also_behind_conv
@case
def average_pool_count_pads(b: Builder) -> str:
    return b.op("AveragePool", image(b), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)


@case
def average_pool_asymmetric(b: Builder) -> str:
    return b.op("AveragePool", image(b), kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])


@case
def average_pool_ceil(b: Builder) -> str:
    x = image(b, 8, 14, 14)
    return b.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


@case
def average_pool_whole(b: Builder) -> str:
    return b.op("AveragePool", image(b, 8, 7, 7), kernel_shape=[7, 7])


@case
def average_pool_same_upper(b: Builder) -> str:
    return b.op("AveragePool", image(b), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")


@also_behind_conv
@case
def global_average_pool(b: Builder) -> str:
    return b.op("GlobalAveragePool", image(b))


@case
def global_max_pool(b: Builder) -> str:
    return b.op("GlobalMaxPool", image(b))


@case
def relu(b: Builder) -> str:
    return b.op("Relu", image(b))


@case
def relu_row(b: Builder) -> str:
    return b.op("Relu", b.input("x", (1, 37)))


@also_behind_conv
@case
def clip(b: Builder) -> str:
    low, high = b.const(np.float32(-0.5)), b.const(np.float32(0.75))
    return b.op("Clip", image(b), low, high)


@case
def clip_no_minimum(b: Builder) -> str:
    return b.op("Clip", image(b), "", b.const(np.float32(0.5)))


@case
def sigmoid(b: Builder) -> str:
    return b.op("Sigmoid", image(b))


@case
def tanh(b: Builder) -> str:
    return b.op("Tanh", image(b))


@also_behind_conv
@case
def leaky_relu(b: Builder) -> str:
    return b.op("LeakyRelu", image(b), alpha=0.2)


@case
def leaky_relu_default(b: Builder) -> str:
    return b.op("LeakyRelu", image(b))


@case
def elu(b: Builder) -> str:
    return b.op("Elu", image(b), alpha=0.7)


@case
def hard_swish(b: Builder) -> str:
    return b.op("HardSwish", image(b))


@case
def hard_sigmoid(b: Builder) -> str:
    return b.op("HardSigmoid", image(b))


@case
def erf(b: Builder) -> str:
    return b.op("Erf", image(b))


@case
def add(b: Builder) -> str:
    return b.op("Add", image(b), image(b, name="y"))


@case
def add_itself(b: Builder) -> str:
    x = image(b)
    return b.op("Add", x, x)


@case
def add_one_element_plane(b: Builder) -> str:
    return b.op("Add", image(b, 8, 1, 1), image(b, 8, 1, 1, name="y"))


@also_behind_conv
@case
def sub(b: Builder) -> str:
    return b.op("Sub", image(b), image(b, name="y"))


@case
def mul(b: Builder) -> str:
    return b.op("Mul", image(b), image(b, name="y"))


@also_behind_conv
@case
def mul_channel_constant(b: Builder) -> str:
    return b.op("Mul", image(b), b.const(weight(8, 1, 1)[None]))


@case
def add_channel_constant(b: Builder) -> str:
    return b.op("Add", b.const(weight(1, 8, 1, 1)), image(b))


@also_behind_conv
@case
def add_width_constant(b: Builder) -> str:
    return b.op("Add", image(b), b.const(weight(11)))


@also_behind_conv
@case
def sub_channel_constant_first(b: Builder) -> str:
    return b.op("Sub", b.const(weight(1, 8, 1, 1)), image(b))


@also_behind_conv
@case
def mul_scalar(b: Builder) -> str:
    return b.op("Mul", image(b), b.const(np.float32(1.7)))


@also_behind_conv
@case
def div(b: Builder) -> str:
    return b.op("Div", image(b), b.const(np.float32(3.0)))


@also_behind_conv
@case
def mul_channel_gate(b: Builder) -> str:
    return b.op("Mul", image(b), b.input("g", (1, 8, 1, 1)))


@also_behind_conv
@case
def mul_spatial_gate(b: Builder) -> str:
    return b.op("Mul", image(b), b.input("g", (1, 1, 13, 11)))


@also_behind_conv
@case
def add_square_ambiguous(b: Builder) -> str:
    """Eight channels, eight rows, eight columns: a wrong broadcast axis still has the right shape."""
    return b.op("Add", image(b, 8, 8, 8), b.const(weight(1, 8, 1, 1)))


@also_behind_conv
@case
def concat(b: Builder) -> str:
    return b.op("Concat", image(b, 8), image(b, 3, name="y"), axis=1)


@also_behind_conv
@case
def concat_rows(b: Builder) -> str:
    return b.op("Concat", image(b, 8), image(b, 8, name="y"), axis=2)


@also_behind_conv
@case
def concat_negative_axis(b: Builder) -> str:
    return b.op("Concat", image(b, 8), image(b, 8, name="y"), axis=-3)


@case
def concat_vectors(b: Builder) -> str:
    return b.op("Concat", b.input("x", (1, 5)), b.input("y", (1, 6)), axis=1)


@case
def softmax_row(b: Builder) -> str:
    return b.op("Softmax", b.input("x", (1, 37)), axis=-1)


@also_behind_conv
@case
def softmax_channels(b: Builder) -> str:
    return b.op("Softmax", image(b), axis=1)


@case
def softmax_attention(b: Builder) -> str:
    return b.op("Softmax", b.input("x", (1, 4, 9, 9)), axis=-1)


@also_behind_conv
@case
def lrn(b: Builder) -> str:
    return b.op("LRN", image(b), size=5, alpha=1e-3, beta=0.75, bias=1.5)


@case
def lrn_whole_bias(b: Builder) -> str:
    return b.op("LRN", image(b), size=3, alpha=1e-2, beta=0.75, bias=2.0)


@also_behind_conv
@case
def batch_normalization(b: Builder) -> str:
    parts = [b.const(weight(8)), b.const(weight(8)), b.const(weight(8)), b.const(weight(8, low=0.5))]
    return b.op("BatchNormalization", image(b), *parts, epsilon=1e-3)


@case
def layer_normalization(b: Builder) -> str:
    x = b.input("x", (1, 9, 32))
    return b.op("LayerNormalization", x, b.const(weight(32)), b.const(weight(32)), axis=-1, epsilon=1e-5)


@also_behind_conv
@case
def flatten(b: Builder) -> str:
    return b.op("Flatten", image(b))


@also_behind_conv
@case
def flatten_gemm(b: Builder) -> str:
    pooled = b.op("MaxPool", image(b, 8, 14, 14), kernel_shape=[2, 2], strides=[2, 2])
    w, bias = b.const(weight(10, 8 * 49)), b.const(weight(10))
    return b.op("Gemm", b.op("Flatten", pooled), w, bias, transB=1)


@also_behind_conv
@case
def reshape_row(b: Builder) -> str:
    return b.op("Reshape", image(b), b.ints(1, -1))


@also_behind_conv
@case
def reshape_pooled_gemm(b: Builder) -> str:
    pooled = b.op("GlobalAveragePool", image(b, 16, 7, 7))
    w = b.const(weight(10, 16))
    return b.op("Gemm", b.op("Reshape", pooled, b.ints(1, 16)), w, b.const(weight(10)), transB=1)


@case
def reshape_image(b: Builder) -> str:
    return b.op("Reshape", b.input("x", (1, 96)), b.ints(1, 6, 4, 4))


@also_behind_conv
@case
def transpose_nhwc(b: Builder) -> str:
    return b.op("Transpose", image(b), perm=[0, 2, 3, 1])


@case
def transpose_heads(b: Builder) -> str:
    return b.op("Transpose", b.input("x", (1, 9, 4, 8)), perm=[0, 2, 1, 3])


@also_behind_conv
@case
def channel_shuffle(b: Builder) -> str:
    x = b.op("Reshape", image(b, 12, 7, 7), b.ints(1, 3, 4, 7, 7))
    return b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1, 3, 4]), b.ints(1, 12, 7, 7))


@case
def pad_constant(b: Builder) -> str:
    return b.op("Pad", image(b), b.ints(0, 0, 1, 2, 0, 0, 3, 0), b.const(np.float32(0.25)))


@also_behind_conv
@case
def slice_channels(b: Builder) -> str:
    return b.op("Slice", image(b), b.ints(2), b.ints(6), b.ints(1))


@also_behind_conv
@case
def split_channels(b: Builder) -> Sequence[str]:
    return b.ops("Split", image(b), b.ints(3, 5), outputs=2, axis=1)


@also_behind_conv
@case
def resize_nearest(b: Builder) -> str:
    scales = b.const(np.array([1, 1, 2, 2], np.float32))
    return b.op("Resize", image(b), "", scales, mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip


@also_behind_conv
@case
def reduce_mean(b: Builder) -> str:
    return b.op("ReduceMean", image(b), b.ints(2, 3), keepdims=1)


@also_behind_conv
@case
def reduce_all(b: Builder) -> str:
    """A result without dimensions."""
    return b.op("ReduceSum", image(b), keepdims=0)
