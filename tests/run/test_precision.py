"""Ranges for int8 are recorded where some operator may run in int8, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from collage_evo.config import parse_config
from collage_evo.report.progress import LineReporter
from collage_evo.run.context import RunContext
from collage_evo.run.evaluate import open_records
from collage_evo.run.plan import Calibrated
from tests.support.quick import QUICK, nested

IMAGE = "(float[1, 3, 8, 8] x) => (float[1, 2, h, w] y)"
CONVOLUTION = f"{IMAGE} <float[2, 3, 1, 1] k = {{1, -1, 2, 3, 1, 2}}> {{ c = Conv(x, k) y = Relu(c) }}"
PRODUCT = "(float[4, 2] x) => (float[4, 3] y) <float[2, 3] w = {1, -1, 2, 3, 1, 2}> { y = MatMul(x, w) }"
NEITHER = "(float[4, 2] x) => (float[4, 2] y) { a = Sigmoid(x) y = Mul(a, x) }"


@pytest.mark.parametrize(
    ("graph", "backend", "without_data", "budget", "recorded"),
    [
        (CONVOLUTION, "onnxruntime", True, 0.05, True),
        (CONVOLUTION, "onnxruntime", False, 0.05, False),
        (CONVOLUTION, "onnxruntime", True, "exact", False),
        (CONVOLUTION, "ncnn", True, 0.05, False),
        (PRODUCT, "onnxruntime", False, 0.05, True),  # by ranges that are found at run time
        (PRODUCT, "openvino", False, 0.05, False),
        (NEITHER, "onnxruntime", True, 0.05, False),
    ],
)
def test_ranges_are_recorded_where_int8_may_take_part(
    graph: str, backend: str, without_data: bool, budget: object, recorded: bool, tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {graph}')
    onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / "model.onnx")
    asked = {"backends.use": [backend], "accuracy.budget": budget, "accuracy.int8_without_data": without_data}
    given = nested({**QUICK, **asked, "model.source": str(tmp_path / "model.onnx"), "cache.dir": str(tmp_path / "c")})
    with open_records(parse_config(given, (), "test"), tmp_path / "run", LineReporter()) as records:
        found = records[Calibrated].ranges
        assert records[RunContext].files.ranges.exists() == recorded
    assert (found is not None) == recorded
