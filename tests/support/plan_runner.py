"""Runs a plan for lanes without lanes: its steps one after the other, with ONNX Runtime and NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part

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
    memory = {name: np.array(inputs[name]) for name in plan.inputs if name in inputs}
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
            assert len(model.graph.input) == len(step.inputs)
            given = {v.name: memory[name] for v, name in zip(model.graph.input, step.inputs, strict=True)}
            for name, array in zip(step.outputs, run(model, given).values(), strict=True):
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
