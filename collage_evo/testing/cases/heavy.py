"""Cases of single convolutions and matrix products."""

from __future__ import annotations

import numpy as np

from collage_evo.testing.cases.case import Given, convolution, one, weight

SAME = [1, 1, 1, 1]
IMAGE = (1, 8, 13, 11)
convolution("conv_1x1", IMAGE, (16, 8, 1, 1))
convolution("conv_3x3", (1, 16, 14, 14), (32, 16, 3, 3), pads=SAME)
convolution("conv_no_bias", (1, 16, 14, 14), (32, 16, 3, 3), bias=False, pads=SAME)
convolution("conv_odd_channels", (1, 3, 15, 15), (10, 3, 3, 3), strides=[2, 2], pads=SAME)
convolution("conv_7x7_stride", (1, 3, 32, 32), (16, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])
convolution("conv_asymmetric_pads", IMAGE, (8, 8, 3, 2), pads=[0, 1, 2, 0])
convolution("conv_dilated", IMAGE, (8, 8, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])
convolution("conv_same_upper", IMAGE, (8, 8, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
convolution("conv_same_lower", (1, 8, 12, 12), (8, 8, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER")
convolution("conv_grouped", (1, 32, 14, 14), (32, 4, 3, 3), group=8, pads=SAME)
convolution("conv_depthwise", (1, 24, 14, 14), (24, 1, 3, 3), group=24, strides=[2, 2], pads=SAME, twice=True)
convolution("conv_depthwise_multiplier", IMAGE, (16, 1, 3, 3), group=8, pads=SAME)
convolution("conv_1d", (1, 8, 33), (16, 8, 3), pads=[1, 1])
convolution("conv_batch_two", (2, 8, 9, 9), (8, 8, 3, 3), pads=SAME)
one("conv_computed_weight", "Conv", Given(), Given((8, 8, 3, 3), "w"), kernel_shape=[3, 3])
one("conv_transpose", "ConvTranspose", Given(), weight(8, 12, 4, 4), weight(12), strides=[2, 2], pads=SAME)
one(
    *("conv_transpose_output_padding", "ConvTranspose", Given(), weight(8, 6, 3, 3)),
    strides=[2, 2],
    pads=SAME,
    output_padding=[1, 1],
)
one("conv_transpose_grouped", "ConvTranspose", Given(), weight(8, 3, 3, 3), group=4, strides=[2, 2])
one("gemm", "Gemm", Given((1, 32)), weight(20, 32), weight(20), transB=1)
one("gemm_rows", "Gemm", Given((6, 32)), weight(32, 20), weight(20))
one("gemm_scaled", "Gemm", Given((1, 32)), weight(32, 20), weight(20), alpha=0.5, beta=2.0)
one("gemm_no_bias", "Gemm", Given((1, 32)), weight(20, 32), transB=1)
one("matmul_constant", "MatMul", Given((1, 9, 32)), weight(32, 20))
one("matmul_row", "MatMul", Given((1, 32)), weight(32, 20))
one("matmul_two_inputs", "MatMul", Given((1, 4, 9, 16)), Given((1, 4, 16, 9), "y"))
# Without VNNI each pair of weights of 127 saturates 16 bits wherever both activations are above the middle.
EQUAL = np.full((32, 32), 1 / 17, np.float32)
one("conv_equal_weights", "Conv", Given((1, 32, 9, 9)), EQUAL.reshape(32, 32, 1, 1))
one("conv_equal_weights_of_three", "Conv", Given((1, 3, 9, 9)), np.full((32, 3, 3, 3), 1 / 5, np.float32), pads=SAME)
one("matmul_equal_weights", "MatMul", Given((1, 9, 32)), EQUAL)
one("gemm_bounded_by_weights", "Gemm", Given((1, 600)), weight(512, 600), weight(512), transB=1)
one("matmul_bounded_by_weights", "MatMul", Given((1, 2, 512)), weight(600, 512).T)
one("gemm_wide", "Gemm", Given((6, 256)), weight(208, 256), weight(208), transB=1)
one("matmul_wide", "MatMul", Given((1, 9, 256)), weight(256, 208))
