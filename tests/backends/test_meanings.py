"""Operators that a library once took and computed otherwise than ONNX: each backend declines them, or is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Built
from collage_evo.graph.convert.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.testing.cases.case import weight
from tests.backends.pieces import build, error, run, usable

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
    backend, model, variant = usable(library), CASES[case], "eager" if library == "torch" else "default"
    graph = build_graph(model)
    taken = backend.supports(graph, graph.all_nodes)
    assert taken or case != OLD or library not in ("openvino", "ncnn")
    if taken and isinstance(build(backend, model, tmp_path, variant), Built):
        assert error(model, run(backend, model, tmp_path, variant)) < 1e-5
