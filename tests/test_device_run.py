"""Whole runs for a device: searched, raced, delivered and served, on a driver without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.graph.reference import reference_outputs
from collage_evo.testing.models import chain
from tests.support.cuda import FakeCuda
from tests.support.cuda.backend import FakeGpuBackend
from tests.support.faults import install_backend

BRIEF = {
    "target.device": "cuda", "backends.use": "[fakegpu, onnxruntime]", "cache.dir": "cache",
    "fitness.timing": "{min_runs: 3, min_seconds: 0.001}",
    "accuracy.budget": "exact", "search.evaluations": "3", "search.ga.patience": "0",
    "final.rounds": "2", "final.turn_seconds": "0.01", "final.finalists": "1",
}  # fmt: skip
SERVE = """
import json, sys, numpy as np, collage_evo
session = collage_evo.load(sys.argv[1])
x = np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)
for _ in range(3):
    (y,) = session.run(None, {"x": x})
print(json.dumps([session.get_providers(), session.device is not None, session.notes, y.tolist()]))
"""


@pytest.fixture
def environment(fake_cuda: FakeCuda, tmp_path: Path) -> dict[str, str]:
    known = install_backend(tmp_path / "site", FakeGpuBackend)
    return {**os.environ, **known, **fake_cuda.environment, "FAKE_CUDA_LAZY": "1"}


def test_a_run_for_a_device_ends_with_artifacts_that_fresh_processes_serve(
    environment: dict[str, str], tmp_path: Path
) -> None:
    model = chain(1)
    onnx.save(model, tmp_path / "tiny.onnx")
    overrides = [part for key, value in BRIEF.items() for part in ("-s", f"{key}={value}")]
    run = [sys.executable, "-m", "collage_evo", "run", "tiny.onnx", "--out", "run", *overrides]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["target"]["device"] == "cuda"
    timed = {one["name"] for one in result["baselines"] if one["median_ms"]}
    assert timed >= {"fakegpu", "fakegpu/plain", "onnxruntime"}
    assert result["cost_model"]["copies"]

    x = np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)
    alone = tmp_path / "run" / "baselines" / "fakegpu.collage"
    for artifact in (tmp_path / "run" / "best.collage", alone):
        serve = [sys.executable, "-c", SERVE, str(artifact)]
        served = subprocess.run(serve, env=environment, capture_output=True, text=True)
        assert served.returncode == 0, served.stderr
        providers, on_device, notes, y = json.loads(served.stdout)
        assert providers[0] == "CUDAExecutionProvider"
        assert on_device or artifact != alone
        assert notes == [] or artifact != alone
        np.testing.assert_allclose(np.array(y), reference_outputs(model, {"x": x}, 1)[0], rtol=1e-5, atol=1e-6)
