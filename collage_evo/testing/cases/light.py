"""Cases of single pools, elementwise operators, normalisations and changes of shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import Given, also_behind_conv, case, image, ints, one, weight

X, Y = Given(), Given(name="y")
EVEN = Given((1, 8, 14, 14))
CHANNELS = weight(1, 8, 1, 1)
TWOS: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2]}

one("max_pool", "MaxPool", X, **TWOS, pads=[1, 1, 1, 1], behind_conv=True)
one("max_pool_asymmetric", "MaxPool", X, **TWOS, pads=[0, 0, 1, 1])
one("max_pool_ceil", "MaxPool", EVEN, **TWOS, ceil_mode=1)
one("max_pool_ceil_pads", "MaxPool", EVEN, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
one("average_pool", "AveragePool", X, **TWOS, pads=[1, 1, 1, 1])
one("average_pool_count_pads", "AveragePool", X, **TWOS, pads=[1, 1, 1, 1], count_include_pad=1, behind_conv=True)
one("average_pool_asymmetric", "AveragePool", X, **TWOS, pads=[0, 0, 1, 1])
one("average_pool_ceil", "AveragePool", EVEN, **TWOS, ceil_mode=1)
one("average_pool_whole", "AveragePool", Given((1, 8, 7, 7)), kernel_shape=[7, 7])
one("average_pool_same_upper", "AveragePool", X, **TWOS, auto_pad="SAME_UPPER")
one("global_average_pool", "GlobalAveragePool", X, behind_conv=True)
one("global_max_pool", "GlobalMaxPool", X)
one("relu", "Relu", X)
one("relu_row", "Relu", Given((1, 37)))
one("clip", "Clip", X, np.float32(-0.5), np.float32(0.75), behind_conv=True)
one("clip_no_minimum", "Clip", X, "", np.float32(0.5))
one("sigmoid", "Sigmoid", X)
one("tanh", "Tanh", X)
one("leaky_relu", "LeakyRelu", X, alpha=0.2, behind_conv=True)
one("leaky_relu_default", "LeakyRelu", X)
one("elu", "Elu", X, alpha=0.7)
one("hard_swish", "HardSwish", X)
one("hard_sigmoid", "HardSigmoid", X)
one("erf", "Erf", X)
one("add", "Add", X, Y)


@case
def add_itself(b: Builder) -> str:
    x = image(b)
    return b.op("Add", x, x)


@case
def add_a_constant_called_file(b: Builder) -> str:
    return b.op("Add", image(b), b.const(weight(8, 1, 1), "file"))


one("add_one_element_plane", "Add", Given((1, 8, 1, 1)), Given((1, 8, 1, 1), "y"))
one("sub", "Sub", X, Y, behind_conv=True)
one("mul", "Mul", X, Y)
one("mul_channel_constant", "Mul", X, weight(8, 1, 1)[None], behind_conv=True)
one("add_channel_constant", "Add", CHANNELS, X)
one("add_width_constant", "Add", X, weight(11), behind_conv=True)
one("sub_channel_constant_first", "Sub", CHANNELS, X, behind_conv=True)
one("mul_scalar", "Mul", X, np.float32(1.7), behind_conv=True)
one("div", "Div", X, np.float32(3.0), behind_conv=True)
one("mul_channel_gate", "Mul", X, Given((1, 8, 1, 1), "g"), behind_conv=True)
one("mul_spatial_gate", "Mul", X, Given((1, 1, 13, 11), "g"), behind_conv=True)
# Eight channels, eight rows, eight columns: a wrong broadcast axis still has the right shape.
one("add_square_ambiguous", "Add", Given((1, 8, 8, 8)), CHANNELS, behind_conv=True)
one("concat", "Concat", X, Given((1, 3, 13, 11), "y"), axis=1, behind_conv=True)
one("concat_rows", "Concat", X, Y, axis=2, behind_conv=True)
one("concat_negative_axis", "Concat", X, Y, axis=-3, behind_conv=True)
one("concat_vectors", "Concat", Given((1, 5)), Given((1, 6), "y"), axis=1)
one("softmax_row", "Softmax", Given((1, 37)), axis=-1)
one("softmax_channels", "Softmax", X, axis=1, behind_conv=True)
one("softmax_attention", "Softmax", Given((1, 4, 9, 9)), axis=-1)
one("lrn", "LRN", X, size=5, alpha=1e-3, beta=0.75, bias=1.5, behind_conv=True)
one("lrn_whole_bias", "LRN", X, size=3, alpha=1e-2, beta=0.75, bias=2.0)
one(
    *("batch_normalization", "BatchNormalization", X, *(weight(8),) * 3, weight(8, low=0.5)),
    epsilon=1e-3,
    behind_conv=True,
)
one(*("layer_normalization", "LayerNormalization", Given((1, 9, 32)), weight(32), weight(32)), axis=-1, epsilon=1e-5)
one("flatten", "Flatten", X, behind_conv=True)


@also_behind_conv
@case
def flatten_gemm(b: Builder) -> str:
    pooled = b.op("MaxPool", image(b, 8, 14, 14), kernel_shape=[2, 2], strides=[2, 2])
    w, bias = b.const(weight(10, 8 * 49)), b.const(weight(10))
    return b.op("Gemm", b.op("Flatten", pooled), w, bias, transB=1)


one("reshape_row", "Reshape", X, ints(1, -1), behind_conv=True)


@also_behind_conv
@case
def reshape_pooled_gemm(b: Builder) -> str:
    pooled = b.op("GlobalAveragePool", image(b, 16, 7, 7))
    w = b.const(weight(10, 16))
    return b.op("Gemm", b.op("Reshape", pooled, b.ints(1, 16)), w, b.const(weight(10)), transB=1)


one("reshape_image", "Reshape", Given((1, 96)), ints(1, 6, 4, 4))
one("transpose_nhwc", "Transpose", X, perm=[0, 2, 3, 1], behind_conv=True)
one("transpose_heads", "Transpose", Given((1, 9, 4, 8)), perm=[0, 2, 1, 3])


@also_behind_conv
@case
def channel_shuffle(b: Builder) -> str:
    x = b.op("Reshape", image(b, 12, 7, 7), b.ints(1, 3, 4, 7, 7))
    return b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1, 3, 4]), b.ints(1, 12, 7, 7))


one("pad_constant", "Pad", X, ints(0, 0, 1, 2, 0, 0, 3, 0), np.float32(0.25))
one("slice_channels", "Slice", X, ints(2), ints(6), ints(1), behind_conv=True)


@also_behind_conv
@case
def split_channels(b: Builder) -> Sequence[str]:
    return b.ops("Split", image(b), b.ints(3, 5), outputs=2, axis=1)


one(
    *("resize_nearest", "Resize", X, "", np.array([1, 1, 2, 2], np.float32)),
    mode="nearest",
    nearest_mode="floor",
    coordinate_transformation_mode="asymmetric",
    behind_conv=True,
)
one("reduce_mean", "ReduceMean", X, ints(2, 3), keepdims=1, behind_conv=True)
# A result without dimensions.
one("reduce_all", "ReduceSum", X, keepdims=0, behind_conv=True)
