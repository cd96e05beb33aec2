"""Small models that a backend, if it takes them, must compute right: single operators and short regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from collage_evo.graph.builder import Builder

CASES: dict[str, Callable[[], onnx.ModelProto]] = {}
"""Name to the function that makes the model."""

Make = Callable[[Builder], Sequence[str] | str]

_RNG_SEED = 7


def case(make: Make) -> Make:
    """Register ``make``, which fills a builder and returns its outputs, under its name."""
    CASES[make.__name__] = lambda: _model(make, Builder(make.__name__))
    return make


def also_behind_conv(make: Make) -> Make:
    """Register ``make`` a second time, with its images computed by convolutions."""
    name = f"{make.__name__}_behind_conv"
    CASES[name] = lambda: _model(make, BehindConv(name))
    return make


def _model(make: Make, builder: Builder) -> onnx.ModelProto:
    outputs = make(builder)
    return builder.model(*([outputs] if isinstance(outputs, str) else outputs))


def weight(*shape: int, low: float = -1.0) -> np.ndarray:
    """Uniform values, the same for the same shape, small enough to keep sums near one."""
    rng = np.random.default_rng(_RNG_SEED + sum(shape))
    fan_in = max(1, int(np.prod(shape[1:])))
    return (rng.uniform(low, 1.0, shape) / np.sqrt(fan_in)).astype(np.float32)


class BehindConv(Builder):
    """Puts a convolution between each image input and what reads it.

    A converter that has to guess which axis is the batch knows it then; without one it may guess otherwise.
    """


def image(b: Builder, channels: int = 8, height: int = 13, width: int = 11, name: str = "x") -> str:
    x = b.input(name, (1, channels, height, width))
    return conv(b, x, (channels, channels, 1, 1)) if isinstance(b, BehindConv) else x


def conv(b: Builder, x: str, kernel: tuple[int, ...], bias: bool = True, **attributes: Any) -> str:
    """A convolution with a weight of the shape ``kernel``."""
    inputs = [x, b.const(weight(*kernel))]
    if bias:
        inputs.append(b.const(weight(kernel[0])))
    return b.op("Conv", *inputs, kernel_shape=list(kernel[2:]), **attributes)


@case
def conv_1x1(b: Builder) -> str:
    return conv(b, image(b), (16, 8, 1, 1))


@case
def conv_3x3(b: Builder) -> str:
    return conv(b, image(b, 16, 14, 14), (32, 16, 3, 3), pads=[1, 1, 1, 1])


@case
def conv_no_bias(b: Builder) -> str:
    return conv(b, image(b, 16, 14, 14), (32, 16, 3, 3), bias=False, pads=[1, 1, 1, 1])


@case
def conv_odd_channels(b: Builder) -> str:
    return conv(b, image(b, 3, 15, 15), (10, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])


@case
def conv_7x7_stride(b: Builder) -> str:
    return conv(b, image(b, 3, 32, 32), (16, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])


@case
def conv_asymmetric_pads(b: Builder) -> str:
    return conv(b, image(b), (8, 8, 3, 2), pads=[0, 1, 2, 0])


@case
def conv_dilated(b: Builder) -> str:
    return conv(b, image(b), (8, 8, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])


@case
def conv_same_upper(b: Builder) -> str:
    return conv(b, image(b), (8, 8, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")


@case
def conv_same_lower(b: Builder) -> str:
    return conv(b, image(b, 8, 12, 12), (8, 8, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER")


@case
def conv_grouped(b: Builder) -> str:
    return conv(b, image(b, 32, 14, 14), (32, 4, 3, 3), group=8, pads=[1, 1, 1, 1])


@also_behind_conv
@case
def conv_depthwise(b: Builder) -> str:
    return conv(b, image(b, 24, 14, 14), (24, 1, 3, 3), group=24, strides=[2, 2], pads=[1, 1, 1, 1])


@case
def conv_depthwise_multiplier(b: Builder) -> str:
    return conv(b, image(b, 8), (16, 1, 3, 3), group=8, pads=[1, 1, 1, 1])


@case
def conv_1d(b: Builder) -> str:
    return conv(b, b.input("x", (1, 8, 33)), (16, 8, 3), pads=[1, 1])


@case
def conv_batch_two(b: Builder) -> str:
    return conv(b, b.input("x", (2, 8, 9, 9)), (8, 8, 3, 3), pads=[1, 1, 1, 1])


@case
def conv_computed_weight(b: Builder) -> str:
    return b.op("Conv", image(b), b.input("w", (8, 8, 3, 3)), kernel_shape=[3, 3])


@case
def conv_relu(b: Builder) -> str:
    return b.op("Relu", conv(b, image(b, 16, 14, 14), (16, 16, 3, 3), pads=[1, 1, 1, 1]))


@case
def conv_add_relu(b: Builder) -> str:
    y = conv(b, image(b, 16, 14, 14), (16, 16, 3, 3), pads=[1, 1, 1, 1])
    return b.op("Relu", b.op("Add", y, image(b, 16, 14, 14, name="r")))


@case
def residual_block(b: Builder) -> str:
    x = image(b, 16, 14, 14)
    y = b.op("Relu", conv(b, x, (8, 16, 1, 1)))
    y = b.op("Relu", conv(b, y, (8, 8, 3, 3), pads=[1, 1, 1, 1]))
    return b.op("Relu", b.op("Add", conv(b, y, (16, 8, 1, 1)), x))


@case
def residual_block_sum(b: Builder) -> str:
    x = image(b, 16, 14, 14)
    return b.op("Relu", b.op("Sum", conv(b, x, (16, 16, 3, 3), pads=[1, 1, 1, 1]), x))


@case
def inception(b: Builder) -> str:
    x = image(b, 16, 14, 14)
    pooled = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    wide = conv(b, x, (8, 16, 3, 3), pads=[1, 1, 1, 1])
    return b.op("Concat", b.op("Relu", conv(b, x, (6, 16, 1, 1))), wide, pooled, axis=1)


@case
def squeeze_excite(b: Builder) -> str:
    x = image(b, 16, 14, 14)
    s = b.op("Relu", conv(b, b.op("GlobalAveragePool", x), (4, 16, 1, 1)))
    return b.op("Mul", x, b.op("HardSigmoid", conv(b, s, (16, 4, 1, 1)), alpha=1 / 6, beta=0.5))


@case
def conv_transpose(b: Builder) -> str:
    w, bias = b.const(weight(8, 12, 4, 4)), b.const(weight(12))
    return b.op("ConvTranspose", image(b), w, bias, strides=[2, 2], pads=[1, 1, 1, 1])


@case
def conv_transpose_output_padding(b: Builder) -> str:
    w = b.const(weight(8, 6, 3, 3))
    return b.op("ConvTranspose", image(b), w, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])


@case
def conv_transpose_grouped(b: Builder) -> str:
    w = b.const(weight(8, 3, 3, 3))
    return b.op("ConvTranspose", image(b), w, group=4, strides=[2, 2])


@case
def gemm(b: Builder) -> str:
    w, bias = b.const(weight(20, 32)), b.const(weight(20))
    return b.op("Gemm", b.input("x", (1, 32)), w, bias, transB=1)


@case
def gemm_rows(b: Builder) -> str:
    w, bias = b.const(weight(32, 20)), b.const(weight(20))
    return b.op("Gemm", b.input("x", (6, 32)), w, bias)


@case
def gemm_scaled(b: Builder) -> str:
    w, bias = b.const(weight(32, 20)), b.const(weight(20))
    return b.op("Gemm", b.input("x", (1, 32)), w, bias, alpha=0.5, beta=2.0)


@case
def gemm_no_bias(b: Builder) -> str:
    return b.op("Gemm", b.input("x", (1, 32)), b.const(weight(20, 32)), transB=1)


@case
def matmul_constant(b: Builder) -> str:
    return b.op("MatMul", b.input("x", (1, 9, 32)), b.const(weight(32, 20)))


@case
def matmul_row(b: Builder) -> str:
    return b.op("MatMul", b.input("x", (1, 32)), b.const(weight(32, 20)))


@case
def matmul_two_inputs(b: Builder) -> str:
    return b.op("MatMul", b.input("x", (1, 4, 9, 16)), b.input("y", (1, 4, 16, 9)))


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


@case
def two_outputs_in_a_row(b: Builder) -> Sequence[str]:
    """The first output is also the input of an operator that likes to work in place."""
    y = conv(b, image(b), (8, 8, 3, 3), pads=[1, 1, 1, 1])
    return y, b.op("Relu", y)


@also_behind_conv
@case
def two_outputs_side_by_side(b: Builder) -> Sequence[str]:
    x = image(b)
    return b.op("Sigmoid", x), conv(b, x, (6, 8, 1, 1))


@case
def relu_first(b: Builder) -> str:
    return conv(b, b.op("Relu", image(b)), (8, 8, 3, 3), pads=[1, 1, 1, 1])


@also_behind_conv
@case
def relu_first_and_kept(b: Builder) -> str:
    """The input is read again after an operator that likes to work in place has had it."""
    x = image(b)
    return b.op("Add", conv(b, b.op("Relu", x), (8, 8, 3, 3), pads=[1, 1, 1, 1]), x)


@also_behind_conv
@case
def elementwise_chain(b: Builder) -> str:
    y = b.op("Mul", b.op("Sigmoid", image(b)), image(b, name="y"))
    return b.op("Relu", b.op("Add", y, b.const(weight(1, 8, 1, 1))))


@case
def inputs_in_reverse(b: Builder) -> str:
    """Inputs declared in another order than they are used in."""
    first, second = image(b, 8, name="b"), image(b, 8, name="a")
    return b.op("Sub", conv(b, second, (8, 8, 1, 1)), first)


@case
def gelu_tower(b: Builder) -> str:
    x = b.op("MatMul", b.input("x", (1, 9, 32)), b.const(weight(32, 64)))
    x = b.op("Add", x, b.const(weight(64)))
    half = b.op("Mul", x, b.const(np.float32(0.5)))
    wide = b.op("Erf", b.op("Div", x, b.const(np.float32(np.sqrt(2)))))
    return b.op("Mul", half, b.op("Add", wide, b.const(np.float32(1))))


@case
def gather_embedding(b: Builder) -> str:
    ids = b.input("ids", (1, 9), TensorProto.INT64)
    return b.op("Gather", b.const(weight(30, 16)), ids)


@case
def arg_max(b: Builder) -> str:
    """An int64 result."""
    return b.op("ArgMax", b.input("x", (1, 37)), axis=1, keepdims=0)


@case
def unsqueeze_squeeze(b: Builder) -> str:
    wide = b.op("Sqrt", b.op("Exp", b.op("Unsqueeze", b.input("x", (1, 37)), b.ints(1, 2))))
    return b.op("Pow", b.op("Squeeze", wide, b.ints(1)), b.const(np.float32(2.0)))


@case
def bottleneck_clipped(b: Builder) -> str:
    """As in MobileNet v2."""
    low, high, x = b.const(np.float32(0)), b.const(np.float32(6)), image(b, 8, 14, 14)
    y = b.op("Clip", conv(b, x, (24, 8, 1, 1)), low, high)
    y = b.op("Clip", conv(b, y, (24, 1, 3, 3), group=24, pads=[1, 1, 1, 1]), low, high)
    return b.op("Add", conv(b, y, (8, 24, 1, 1)), x)


@case
def cast_compare_where(b: Builder) -> str:
    """Boolean tensors inside and int32 at the entry."""
    mask = b.op("Cast", b.input("m", (1, 8, 1, 1), TensorProto.INT32), to=TensorProto.BOOL)
    return b.op("Where", mask, image(b), b.const(np.float32(-1e4)))


@case
def greater(b: Builder) -> str:
    """A boolean result."""
    return b.op("Greater", image(b), image(b, name="y"))


@case
def shuffle_unit(b: Builder) -> str:
    x = image(b, 12, 8, 8)
    y = b.op("Relu", conv(b, x, (12, 4, 1, 1), group=3))
    y = b.op("Transpose", b.op("Reshape", y, b.ints(1, 3, 4, 8, 8)), perm=[0, 2, 1, 3, 4])
    y = conv(b, b.op("Reshape", y, b.ints(1, 12, 8, 8)), (12, 1, 3, 3), group=12, pads=[1, 1, 1, 1])
    return b.op("Relu", b.op("Add", conv(b, y, (12, 4, 1, 1), group=3), x))


@case
def classifier(b: Builder) -> str:
    x = b.op("Relu", conv(b, image(b, 8, 14, 14), (16, 8, 3, 3), pads=[1, 1, 1, 1]))
    x = b.op("AveragePool", x, kernel_shape=[14, 14])
    x = b.op("Reshape", x, b.ints(1, 16))
    return b.op("Softmax", b.op("Gemm", x, b.const(weight(10, 16)), b.const(weight(10)), transB=1), axis=1)


@case
def attention(b: Builder) -> str:
    """Four heads of eight over nine tokens, with a mask, as exporters write it."""
    x = b.input("x", (1, 9, 32))
    q, k, v = (_heads(b, x, kind, perm) for kind, perm in ((1, 1), (2, 2), (3, 1)))
    scores = b.op("Div", b.op("MatMul", q, k), b.const(np.float32(np.sqrt(8))))
    scores = b.op("Softmax", b.op("Add", scores, b.input("mask", (1, 1, 1, 9))), axis=-1)
    context = b.op("Transpose", b.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    return b.op("Add", b.op("MatMul", b.op("Reshape", context, b.ints(1, 9, 32)), b.const(weight(32, 32))), x)


def _heads(b: Builder, x: str, seed: int, kind: int) -> str:
    w = b.const(np.roll(weight(32, 32), seed))
    split = b.op("Reshape", b.op("Add", b.op("MatMul", x, w), b.const(weight(32))), b.ints(1, 9, 4, 8))
    return b.op("Transpose", split, perm=[0, 2, 1, 3] if kind == 1 else [0, 2, 3, 1])
