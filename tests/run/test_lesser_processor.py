"""On a processor without int8 and bfloat16 a run is right, tries nothing in them, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.report.finished import result_in
from collage_evo.target.processor import LEVELS, SWITCH, this_machine
from collage_evo.testing.models import tiny_convnet
from tests.support.quick import QUICK, options

pytestmark = pytest.mark.slow


def test_without_instructions_for_them_lower_precisions_are_declined_with_the_reason(tmp_path: Path) -> None:
    if this_machine().lacks(LEVELS["avx2"]):
        pytest.skip("no level that this processor could be held to")
    onnx.save(tiny_convnet(), tmp_path / "tiny.onnx")
    images = np.random.default_rng(5).standard_normal((12, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=images)
    asked = {"backends.use": ["onnxruntime", "openvino"], "accuracy.budget": 0.02, "cache.dir": str(tmp_path / "c")}
    command = ["run", tmp_path / "tiny.onnx", "--data", tmp_path / "data.npz", *options({**QUICK, **asked})]
    done = subprocess.run(
        [sys.executable, "-m", "collage_evo", *map(str, command), "--out", str(tmp_path / "run")],
        env={**os.environ, SWITCH: "avx2"}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = result_in(tmp_path / "run")
    assert result is not None
    assert {kind for point in result.front for kind in point.arithmetics} <= {"float32", "int8-weights"}
    assert result.accuracy is not None
    assert result.accuracy.error_held_out is not None
    assert result.accuracy.error_held_out < 1e-3
    reason = "This processor has no instructions for bfloat16 or int8, so that was not tried"
    assert reason in result.accuracy.notes
    assert reason in (tmp_path / "run" / "report.html").read_text()
