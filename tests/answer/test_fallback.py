"""A fallback is right for shapes other than the run's too, and runs without optimisations where these fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.answer.baselines import best_fallback, measure_fallbacks
from collage_evo.backends.registry import get_backend
from collage_evo.fitness.jobs import FallbackJob, Measured, Setting
from collage_evo.fitness.machine import PooledMachine
from collage_evo.fitness.pool import WorkerPool
from collage_evo.fitness.references import write_references
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.runtime.artifact import load_artifact
from tests.fitness.helpers import make_setting
from tests.support.faults import WrongElsewhere, install_backend
from tests.support.misoptimised import fails_when_fused
from tests.support.typed import not_none

RELU = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
)


def open_setting(folder: Path, model: onnx.ModelProto, shape: tuple[int, ...]) -> Setting:
    """A run of ``model``, whose input x has this shape in it."""
    setting = make_setting(folder)
    onnx.save(model, setting.files.dynamic)
    feeds = random_inputs(model, 1, {"x": shape})
    write_references(setting.files.reference, [(feeds, {"y": reference_outputs(model, feeds)[0]})])
    return setting


@pytest.mark.parametrize("backend", ["onnxruntime", "elsewhere"])
def test_what_is_wrong_for_other_shapes_is_no_fallback(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in install_backend(tmp_path / "plugin", WrongElsewhere).items():
        monkeypatch.setenv(name, value)
    with Sandbox(open_setting(tmp_path, RELU, (2, 4)), (), 2**33) as sandbox:
        answer = sandbox.call(FallbackJob(backend, "default", str(tmp_path / "any.collage"), 2), 60.0)
    if backend == "onnxruntime":
        assert isinstance(answer, Measured)
    else:
        assert isinstance(answer, Failure)
        assert answer.fault is Fault.WRONG_NUMBERS
        assert "for inputs of other shapes" in answer.message


def test_a_fallback_runs_without_optimisations_where_these_fail(tmp_path: Path) -> None:
    model = fails_when_fused()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    machine = PooledMachine(WorkerPool(PoolConfig(open_setting(tmp_path, model, (2, 4, 1)), (0,), 2**33, 60.0)))
    try:
        found = measure_fallbacks([get_backend("onnxruntime")], tmp_path / "fallbacks", machine)
    finally:
        machine.close()
    assert [one.name for one in found] == ["onnxruntime", "onnxruntime/unoptimised"]
    assert [one.outcome.ok for one in found] == [False, True]
    best = not_none(best_fallback([found]))
    feeds = {"x": np.ones((3, 4, 1), np.float32)}
    with load_artifact(best.artifact) as session:
        np.testing.assert_array_equal(session.run(None, feeds)[0], reference_outputs(model, feeds)[0])
