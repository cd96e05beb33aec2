"""What a run shows of each tensor of a model."""

from __future__ import annotations

import gc

import numpy as np
import onnx
from onnx import TensorProto, helper

from collage_evo.graph.convert.observe import observe
from collage_evo.graph.ir.graph import Tensor
from collage_evo.hardware.memory import PeakMemory

BYTES, LAYERS = 10_000_000, 40


def chain(sizes: list[int | str]) -> onnx.ModelProto:
    """Negations of ``x`` one after the other, and the sizes of the last; ``y`` is the sum."""
    nodes = [helper.make_node("Neg", [f"x{k}" if k else "x"], [f"x{k + 1}"]) for k in range(LAYERS)]
    nodes.append(helper.make_node("Shape", [f"x{LAYERS}"], ["sizes"]))
    nodes.append(helper.make_node("ReduceSum", [f"x{LAYERS}"], ["y"], keepdims=0))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "chain", [given], [made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_large_tensors_are_observed_without_all_of_them_in_memory() -> None:
    model = chain([4, BYTES // 16])
    before = model.SerializeToString()
    feeds = {"x": np.ones((4, BYTES // 16), np.float32)}
    observe(chain([4, 8]), {"x": np.ones((4, 8), np.float32)})  # loads ONNX Runtime
    gc.collect()
    peak = PeakMemory()
    seen = observe(model, feeds)
    assert peak.bytes < 8 * BYTES
    assert model.SerializeToString() == before
    assert seen.tensors["x7"] == Tensor("x7", "float32", (4, BYTES // 16))
    assert seen.tensors.keys() == {"x", *(f"x{k + 1}" for k in range(LAYERS)), "sizes", "y"}
    assert seen.values["sizes"].tolist() == [4, BYTES // 16]
    assert seen.values["y"] == BYTES / 4
    assert "x7" not in seen.values


def test_tensors_of_unknown_sizes_are_seen_as_they_are() -> None:
    seen = observe(chain(["rows", "columns"]), {"x": np.ones((300, 20), np.float32)})
    assert seen.tensors["x7"] == Tensor("x7", "float32", (300, 20))
    assert seen.values.keys() == {"sizes", "y"}
