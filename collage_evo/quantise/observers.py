"""Observers: take a graph, give a model that shows of its activations what ranges and biases are chosen by.

All is computed inside the model, so that a run keeps no tensor longer than it would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.ir import Graph
from collage_evo.quantise.rules import Range, Ranges, corrects_bias, opset

_AXES_READ = 18
"""Operator set from which ReduceMean takes its axes as an input."""


class Observation:
    """What samples showed of activations: extremes, and means over the channels of those that an operator with a bias
    reads."""

    def __init__(self, graph: Graph) -> None:
        self._names = names = _activations(graph)
        self._averaged = _averaged(graph, names)
        self.model = self._observing(graph)
        self.samples = 0
        self._least = np.full(len(names), np.inf, np.float32)
        self._greatest = np.full(len(names), -np.inf, np.float32)
        self._means: list[list[np.ndarray]] = [[] for _ in self._averaged]

    def add(self, found: Sequence[Any]) -> None:
        """What :attr:`model` gave for a sample."""
        parts, count = iter(found), len(self._names)
        # A nan stays one: np.minimum and np.maximum pass it on.
        self._least = np.minimum(self._least, np.array(list(islice(parts, count)), np.float32))
        self._greatest = np.maximum(self._greatest, np.array(list(islice(parts, count)), np.float32))
        for means in self._means:
            means.append(next(parts))
        self.samples += 1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see: a model of integers."""
        return not self._names

    def ranges(self) -> Ranges:
        """Of all whose values were finite."""
        extremes = zip(self._names, self._least, self._greatest, strict=True)
        finite = (one for one in extremes if np.isfinite(one[1:]).all())
        found = {name: Range(float(low), float(high)) for name, low, high in finite}
        for name, means in zip(self._averaged, self._means, strict=True):
            if name in found:
                found[name] = found[name]._replace(means=tuple(np.stack(means).mean(0, np.float64).tolist()))
        return found

    def _observing(self, graph: Graph) -> onnx.ModelProto:
        """The model with what is to be seen as its outputs, in the order in which :meth:`add` takes them."""
        model = onnx.ModelProto()
        model.CopyFrom(graph.model)
        writer = _Observers(model)
        for op_type in ("ReduceMin", "ReduceMax"):
            for name in self._names:
                writer.add(op_type, [name], [], keepdims=0)
        for name in self._averaged:
            others = [axis for axis in range(len(graph.tensors[name].shape)) if axis != 1]
            if opset(graph) < _AXES_READ:
                writer.add("ReduceMean", [name], [None], axes=others, keepdims=0)
            else:
                writer.add("ReduceMean", [name, writer.constant(others)], [None], keepdims=0)
        return model


class _Observers:
    """Writes operators behind those of a model, whose outputs become the model's only ones."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        del self._graph.output[:]

    def constant(self, values: Sequence[int]) -> str:
        """The name of an int64 tensor of ``values``."""
        name = f"observing {' '.join(map(str, values))}"
        if all(tensor.name != name for tensor in self._graph.initializer):
            self._graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def inner(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The output of an operator."""
        made = f"{op_type} of {inputs[0]}"
        self._graph.node.append(helper.make_node(op_type, inputs, [made], **attributes))
        return made

    def add(self, op_type: str, inputs: Sequence[str], shape: Sequence[int | None], **attributes: Any) -> None:
        """An operator whose output, float32 of ``shape``, is one of the model's."""
        made = self.inner(op_type, inputs, **attributes)
        self._graph.output.append(helper.make_tensor_value_info(made, TensorProto.FLOAT, shape))


def _activations(graph: Graph) -> list[str]:
    """Float32 tensors with elements that operators read or make; those inside composites are nobody's business."""
    made = (name for node in graph.nodes for name in node.outputs if name)
    return [name for name in dict.fromkeys((*graph.inputs, *made)) if _has_range(graph, name)]


def _has_range(graph: Graph, name: str) -> bool:
    tensor = graph.tensors[name]
    return tensor.dtype == "float32" and tensor.static and tensor.nbytes > 0


def _averaged(graph: Graph, names: Collection[str]) -> list[str]:
    """Those of ``names`` that an operator reads whose bias can be corrected."""
    read = {node.inputs[0] for node in graph.nodes if corrects_bias(graph, node)}
    return [name for name in names if name in read and len(graph.tensors[name].shape) > 1]
