"""On a processor without VNNI and bfloat16 a run tries int8, does not try bfloat16, is right and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.hardware.levels import LEVELS, SWITCH
from collage_evo.hardware.processor import this_machine
from collage_evo.report.finished import result_in
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK, options
from tests.support.typed import not_none

pytestmark = pytest.mark.slow


def test_int8_takes_part_without_vnni_and_bfloat16_is_declined_with_the_reason(tmp_path: Path) -> None:
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
    result = not_none(result_in(tmp_path / "run"))
    kinds = {kind for point in result.front for kind in point.arithmetics}
    assert kinds <= {"float32", "int8", "int8-weights", "int8-blocks", "int8-rows"}
    assert "Recording the ranges of values, for int8" in done.stderr
    assert result.accuracy is not None
    assert not_none(result.accuracy.error_held_out) < 0.02
    reason = "This processor does not compute in bfloat16, so only float32 and int8 took part"
    assert reason in result.accuracy.notes
    assert reason in (tmp_path / "run" / "report.html").read_text()
