"""Convolutions and matrix products, each alone."""

from __future__ import annotations

from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import also_behind_conv, case, conv, image, weight


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


@case
def gemm_bounded_by_weights(b: Builder) -> str:
    return b.op("Gemm", b.input("x", (1, 600)), b.const(weight(512, 600)), b.const(weight(512)), transB=1)


@case
def matmul_bounded_by_weights(b: Builder) -> str:
    return b.op("MatMul", b.input("x", (1, 2, 512)), b.const(weight(600, 512).T))
