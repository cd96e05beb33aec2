"""Builder of ONNX models: one call for each node, with inferred types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9
SMALL = 4096
"""Most elements of a weight whose values may determine a shape."""


class Builder:
    """Collects nodes and constants of one graph; every call returns the name of the tensor it makes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._counts: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> str:
        """Declare a model input; a string in ``shape`` is a dynamic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def const(self, value: np.ndarray | np.generic, name: str = "") -> str:
        """Store ``value`` as an initializer."""
        name = name or self._fresh("const")
        self._initializers.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def ints(self, *values: int) -> str:
        """A one-dimensional int64 constant: a shape or a list of axes."""
        return self.const(np.array(values, np.int64))

    def op(self, op_type: str, *inputs: str, name: str = "", output: str = "", **attributes: Any) -> str:
        """Append a node with one output."""
        names = [output] if output else None
        return self.ops(op_type, *inputs, outputs=1, name=name, names=names, **attributes)[0]

    def ops(
        self,
        op_type: str,
        *inputs: str,
        outputs: int,
        name: str = "",
        names: Sequence[str] | None = None,
        **attributes: Any,
    ) -> list[str]:
        """Append a node with ``outputs`` outputs."""
        name = name or self._fresh(op_type)
        numbered = [f"{name}_out"] if outputs == 1 else [f"{name}_out{k}" for k in range(outputs)]
        outputs_named = list(names or numbered)
        self._nodes.append(helper.make_node(op_type, list(inputs), outputs_named, name=name, **attributes))
        return outputs_named

    def model(self, *outputs: str, opset: int = OPSET) -> onnx.ModelProto:
        """The finished model; types of all tensors come from shape inference."""
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, results, self._initializers)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        inferred = typed(model, strict=True).graph
        refill(model.graph.output, inferred.output)
        model.graph.value_info.extend(inferred.value_info)
        return model

    def _fresh(self, stem: str) -> str:
        count = self._counts[stem] = self._counts.get(stem, -1) + 1
        return f"{stem}_{count}"


def typed(model: onnx.ModelProto, strict: bool = False) -> onnx.ModelProto:
    """``model`` with the types that ONNX's shape inference finds from only the inputs, in bodies too. Large weights
    are inputs there: only their shapes matter, and so it stays quick.

    Raises:
        Exception: what C++ raises; with ``strict`` also for a type that cannot be inferred.
    """
    graph = model.graph
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    light.graph.MergeFrom(onnx.GraphProto(name=graph.name, node=graph.node, input=graph.input))
    light.graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in graph.output)
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return onnx.shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True)


def refill(field: Any, values: Iterable[Any]) -> None:
    """Put ``values`` in place of all that the repeated ``field`` of a message has."""
    del field[:]
    field.extend(values)
