"""Cases of short regions: blocks of known networks, and wirings that have broken converters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import Given, also_behind_conv, case, conv, image, one, weight


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
def wide_products_of_one_input(b: Builder) -> str:
    x = b.input("x", (2, 5, 256))
    y, z = (b.op("MatMul", x, b.const(weight(256, 208))) for _ in range(2))
    return b.op("MatMul", b.op("Mul", y, b.op("Sigmoid", z)), b.const(weight(208, 256)))


@case
def squeeze_excite(b: Builder) -> str:
    x = image(b, 16, 14, 14)
    s = b.op("Relu", conv(b, b.op("GlobalAveragePool", x), (4, 16, 1, 1)))
    return b.op("Mul", x, b.op("HardSigmoid", conv(b, s, (16, 4, 1, 1)), alpha=1 / 6, beta=0.5))


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
def relu_first_and_output(b: Builder) -> str:
    """The input is read again after an operator that may have worked in place on it."""
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


# An int64 result.
one("arg_max", "ArgMax", Given((1, 37)), axis=1, keepdims=0)


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


# A boolean result.
one("greater", "Greater", Given(), Given(name="y"))


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
    return _attention(b, b.input("mask", (1, 1, 1, 9)))


@case
def attention_with_a_constant_mask(b: Builder) -> str:
    """One row for all: libraries may add it as they add a bias."""
    return _attention(b, b.const(3.0 * weight(1, 1, 1, 9)))


@case
def attention_with_an_expanded_mask(b: Builder) -> str:
    """One row from outside, expanded to all: libraries may look through that."""
    return _attention(b, b.op("Expand", b.input("mask", (1, 1, 1, 9)), b.ints(1, 4, 9, 9)))


def _attention(b: Builder, mask: str) -> str:
    x = b.input("x", (1, 9, 32))
    q, k, v = (_heads(b, x, kind, perm) for kind, perm in ((1, 1), (2, 2), (3, 1)))
    scores = b.op("Div", b.op("MatMul", q, k), b.const(np.float32(np.sqrt(8))))
    scores = b.op("Softmax", b.op("Add", scores, mask), axis=-1)
    context = b.op("Transpose", b.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    return b.op("Add", b.op("MatMul", b.op("Reshape", context, b.ints(1, 9, 32)), b.const(weight(32, 32))), x)


def _heads(b: Builder, x: str, seed: int, kind: int) -> str:
    w = b.const(np.roll(weight(32, 32), seed))
    split = b.op("Reshape", b.op("Add", b.op("MatMul", x, w), b.const(weight(32))), b.ints(1, 9, 4, 8))
    return b.op("Transpose", split, perm=[0, 2, 1, 3] if kind == 1 else [0, 2, 3, 1])
