"""Operators that a library once took and computed otherwise than ONNX: each backend declines them, or is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Built, Target
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import weight

FLOOR = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
IMAGE = (1, 3, 12, 12)
OLD = "a Softmax over the last axis, of an old operator set"


def alone(
    op_type: str, inputs: Sequence[tuple[int, ...] | np.ndarray | str], opset: int = 18, **attributes: Any
) -> onnx.ModelProto:
    """One operator. Its inputs: a shape is one of the model's, an array a constant, "" none."""
    b = Builder(op_type)
    names = []
    for place, given in enumerate(inputs):
        if isinstance(given, str):
            names.append(given)
        else:
            names.append(b.input(f"x{place}", given) if isinstance(given, tuple) else b.const(given))
    return b.model(b.op(op_type, *names, **attributes), opset=opset)


CASES = {
    "a Resize by a fraction that gives a whole multiple": alone(
        "Resize", [(1, 3, 2, 2), "", np.array([1, 1, 2.4, 2.4], np.float32)], **FLOOR
    ),
    "a Resize that repeats channels": alone(
        "Resize", [(1, 3, 4, 4), "", np.array([1, 2, 1, 1], np.float32)], **FLOOR
    ),
    "a Softmax over all axes from one on": alone("Softmax", [(2, 3, 4)], opset=11),
    "a Softmax over two axes": alone("Softmax", [(1, 3, 4, 5)], opset=11, axis=2),
    OLD: alone("Softmax", [(1, 3, 4)], opset=11, axis=2),
    "a Pad by a value that is computed": alone("Pad", [IMAGE, np.array([0, 0, 1, 2, 0, 0, 1, 2]), ()]),
    "an LSTM whose input and forget gates are one": alone(
        "LSTM", [(4, 1, 5), weight(1, 12, 5), weight(1, 12, 3), weight(1, 24)], hidden_size=3, input_forget=1
    ),
    "a mean over more than there is, whose padding counts": alone(
        "AveragePool", [IMAGE], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1, count_include_pad=1
    ),
}


@pytest.mark.parametrize("library", ["onnxruntime", "openvino", "ncnn", "tvm", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_taken_is_right(case: str, library: str, tmp_path: Path) -> None:
    backend, model = get_backend(library), CASES[case]
    if not backend.probe().available:
        pytest.skip(backend.probe().reason)
    graph = build_graph(model)
    if not backend.supports(graph, graph.all_nodes):
        return
    variant = backend.variant("eager" if library == "torch" else "default")
    built = backend.build(model, Target(), variant, tmp_path)
    if not isinstance(built, Built):
        return
    sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    feeds = random_inputs(graph, 0)
    made = [np.zeros(tensor.shape, tensor.dtype) for tensor in sides[1]]
    loaded: Any = backend.load(tmp_path, Target(), variant, *sides)
    loaded.bind([np.ascontiguousarray(value) for value in feeds.values()], made)()
    assert relative_error(made, Reference(model).run(feeds)).relative < 1e-5


@pytest.mark.parametrize("library", ["openvino", "ncnn"])
def test_what_an_old_operator_set_means_as_well_is_taken(library: str) -> None:
    graph = build_graph(CASES[OLD])
    assert get_backend(library).supports(graph, graph.all_nodes)
