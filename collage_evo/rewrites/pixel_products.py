"""Rewrite ``pixel-products``: a 1x1 convolution of a single pixel as a product of matrices."""

from __future__ import annotations

import numpy as np

from collage_evo.graph.ir.graph import Graph
from collage_evo.rewrites.common import Convolution, ConvolutionRewrite, reshape
from collage_evo.rewrites.rewrite import Draft

_BIAS_FREE_FROM = 11
"""The version from which Gemm needs no bias."""


class PixelProducts(ConvolutionRewrite):
    """A 1x1 convolution of one pixel, as in squeeze-and-excitation blocks and at the end of networks, as Gemm.

    For more pixels it does not apply: among neighbours in a library's own layout, a product costs two changes of
    layout.
    """

    name = "pixel-products"

    def fits(self, graph: Graph, conv: Convolution) -> bool:
        return conv.pointwise and set(graph.tensors[conv.x].shape[2:]) == {1}

    def write(self, draft: Draft, graph: Graph, conv: Convolution) -> None:
        input_shape, output_shape = graph.tensors[conv.x].shape, graph.tensors[conv.node.outputs[0]].shape
        matrix = conv.weights.reshape(output_shape[1], input_shape[1])
        inputs = [reshape(draft, conv.x, input_shape[:2]), draft.constant(matrix)]
        if conv.bias is not None or draft.opset < _BIAS_FREE_FROM:
            inputs.append(draft.constant(np.zeros(output_shape[1], np.float32) if conv.bias is None else conv.bias))
        reshape(draft, draft.node("Gemm", inputs, transB=1), output_shape, conv.node.outputs[0])
