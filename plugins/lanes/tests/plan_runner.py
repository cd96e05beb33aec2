"""Runs a plan for lanes without lanes: its parts one after the other, with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort

from collage_evo_lanes.plan import LanePlan

Arrays = Mapping[str, np.ndarray]


def run(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {v.name: inputs[v.name] for v in session.get_inputs()}), strict=True))


def run_plan(plan: LanePlan, models: tuple[onnx.ModelProto, ...], inputs: Arrays) -> dict[str, np.ndarray]:
    """What the parts leave in the outputs, one after the other. Nobody has written what is read."""
    memory = {name: np.array(inputs[name]) for name in plan.inputs if name in inputs}
    for name, tensor in plan.tensors.items():
        if name not in memory:
            memory[name] = np.full(tensor.shape, np.nan, tensor.dtype)
    for part, model in zip(plan.parts, models, strict=True):
        assert len(model.graph.input) == len(part.inputs)
        given = {v.name: memory[name] for v, name in zip(model.graph.input, part.inputs, strict=True)}
        for name, array in zip(part.outputs, run(model, given).values(), strict=True):
            assert array.shape == plan.tensors[name].shape
            memory[name][...] = array
    return {name: memory[name] for name in plan.outputs}
