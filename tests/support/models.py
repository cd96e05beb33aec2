"""Small ONNX models for tests."""

from __future__ import annotations

import onnx
import onnx.parser


def parse_graph(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """The model of a graph in ONNX's text format: ``g (float[4] x) => (float[4] y) { y = Neg(x) }``."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {text}')
