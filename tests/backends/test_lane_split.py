"""Portions of a region, computed one by one and put together, give what the region gives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part
from collage_evo.backends.lanes.split import split
from collage_evo.errors import InputError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.read import build_graph
from tests.support.random_chains import RandomChain

Arrays = Mapping[str, np.ndarray]


def run(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {v.name: inputs[v.name] for v in session.get_inputs()}), strict=True))


def stretch(array: np.ndarray, axis: int, start: int, stop: int) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def run_plan(plan: LanePlan, models: tuple[onnx.ModelProto, ...], inputs: Arrays) -> dict[str, np.ndarray]:
    """What the steps leave in the outputs, one after the other. Nobody has written what is read."""
    memory = {name: np.array(inputs[name]) for name in plan.inputs}
    for name, tensor in plan.tensors.items():
        if name not in memory and name not in plan.views:
            memory[name] = np.full(tensor.shape, np.nan, tensor.dtype)
    for name, view in plan.views.items():
        memory[name] = stretch(memory[view.parent], view.axis, view.start, view.stop)
        assert memory[name].flags.c_contiguous
    waiting = list(models)
    for step in plan.steps:
        if isinstance(step, Part):
            model = waiting.pop(0)
            assert tuple(value.name for value in model.graph.input) == step.inputs
            for name, array in run(model, {name: memory[name] for name in step.inputs}).items():
                assert array.shape == plan.tensors[name].shape
                memory[name][...] = array
        else:
            copy(step, memory)
    assert not waiting
    return {name: memory[name] for name in plan.outputs}


def copy(step: Copy, memory: Arrays) -> None:
    larger = memory[step.target if step.join else step.source]
    part = stretch(larger, step.axis, step.start, step.stop)
    if step.join:
        part[...] = memory[step.source]
    else:
        memory[step.target][...] = part


def require_equal(model: onnx.ModelProto, lanes: int, kind: str, most_extra: float) -> LanePlan:
    plan, models = split(build_graph(model), lanes, kind, most_extra)
    inputs = random_inputs(model, 0)
    expected, found = run(model, inputs), run_plan(plan, models, inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * np.abs(array).max())
    return plan


def refused(model: onnx.ModelProto, kind: str, most_extra: float) -> str:
    """Why a model is not cut into two portions; empty if it is, and they are right."""
    try:
        require_equal(model, 2, kind, most_extra)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("lanes", [2, 3])
def test_rows_of_random_chains(lanes: int) -> None:
    reasons = []
    for seed in range(100):
        model = RandomChain(np.random.default_rng([lanes, seed])).model(6)
        try:
            require_equal(model, lanes, "rows", most_extra=float("inf"))
        except InputError as error:
            reasons.append(str(error))
    known = ("rows for", "lies in its padding", "is padding", "counts its padding", "outside its input", "no input")
    assert all(any(text in reason for text in (*known, "beyond its input")) for reason in reasons), reasons
    assert len(reasons) < 30
