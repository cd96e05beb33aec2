"""Small models on which a library's own optimisations are wrong or fail, rebuilt from public reports."""

from __future__ import annotations

import onnx
import onnx.parser

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>'


def fused_wrongly() -> onnx.ModelProto:
    """A layer normalisation by columns, which ONNX Runtime 1.32 and OpenVINO fuse as one by rows.

    Source: onnxruntime #30513.
    """
    return _parsed("""g (float[8, 8] x) => (float[8, 8] y)
        <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] bias = {0, 0, 0, 0, 0, 0, 0, 0},
         float two = {2.0}, float epsilon = {1e-5}> {
        mean = ReduceMean<axes = [-1], keepdims = 0>(x)
        apart = Sub(x, mean)
        squared = Pow(apart, two)
        variance = ReduceMean<axes = [-1], keepdims = 0>(squared)
        padded = Add(variance, epsilon)
        deviation = Sqrt(padded)
        normal = Div(apart, deviation)
        scaled = Mul(normal, scale)
        y = Add(scaled, bias)
    }""")


def fails_when_fused() -> onnx.ModelProto:
    """An RMS normalisation whose scale is wider than the axis: fused, ONNX Runtime 1.32 cannot run it.

    Source: onnx #8203.
    """
    return _parsed("""g (float[2, 4, 1] x) => (float[2, 4, 8] y)
        <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, float two = {2.0}, float epsilon = {1e-5}> {
        squared = Pow(x, two)
        mean = ReduceMean<axes = [-1], keepdims = 1>(squared)
        padded = Add(mean, epsilon)
        deviation = Sqrt(padded)
        normal = Div(x, deviation)
        y = Mul(normal, scale)
    }""")


def steps(values: int = 4096) -> onnx.ModelProto:
    """Values that lie on the borders of a quantiser's steps but for rounding."""
    return _parsed(f"""g (float[{values}] x) => (float[{values}] y)
        <float step = {{0.1}}, uint8 zero = {{128}}, float ten = {{10.0}}, float third = {{0.33333334}},
         float three = {{3.0}}, float half = {{0.05}}> {{
        tenths = Mul(x, ten)
        whole = Round(tenths)
        back = Div(whole, ten)
        between = Add(back, half)
        part = Mul(between, third)
        again = Mul(part, three)
        q = QuantizeLinear(again, step, zero)
        y = DequantizeLinear(q, step, zero)
    }}""")


def _parsed(text: str) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{_HEAD} {text}"))
