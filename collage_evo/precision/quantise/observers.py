"""Observers: a model whose outputs show the extremes and means of a graph's activations.

The model computes them itself, each behind the operator whose tensor it reads: a run in the model's order holds no
tensor longer than it would otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.ir.graph import Graph
from collage_evo.models.builder import refill
from collage_evo.multimap import multimap
from collage_evo.precision.quantise.rules import Range, Ranges, corrected_axis

_AXES_READ = 18
"""Operator set from which ReduceMean takes its axes as an input."""


class Observation:
    """Observed extremes of activations, and means over the channels of those that an operator with a bias reads."""

    def __init__(self, graph: Graph) -> None:
        self._names = names = _activations(graph)
        self._averaged = _averaged(graph, names)
        self.model = self._observing(graph)
        self._least = np.full(len(names), np.inf, np.float32)
        self._greatest = np.full(len(names), -np.inf, np.float32)
        self._means: list[list[np.ndarray]] = [[] for _ in self._averaged]

    def add(self, outputs: Sequence[Any]) -> None:
        """Add the outputs of :attr:`model` for a sample."""
        parts, count = iter(outputs), len(self._names)
        # np.minimum and np.maximum propagate nan.
        self._least = np.minimum(self._least, np.array(list(islice(parts, count)), np.float32))
        self._greatest = np.maximum(self._greatest, np.array(list(islice(parts, count)), np.float32))
        for means in self._means:
            means.append(next(parts))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to observe: a model of integers."""
        return not self._names

    def ranges(self) -> Ranges:
        """Ranges of all activations with finite values."""
        extremes = zip(self._names, self._least, self._greatest, strict=True)
        finite = (extreme for extreme in extremes if np.isfinite(extreme[1:]).all())
        ranges = {name: Range(float(low), float(high)) for name, low, high in finite}
        for name, means in zip(self._averaged, self._means, strict=True):
            if name in ranges:
                ranges[name] = ranges[name]._replace(means=tuple(np.stack(means).mean(0, np.float64).tolist()))
        return ranges

    def _observing(self, graph: Graph) -> onnx.ModelProto:
        """The model with the observed values as its outputs, in the order of :meth:`add`."""
        model = deepcopy(graph.model)
        del model.graph.output[:], model.graph.node[:]
        for op_type in ("ReduceMin", "ReduceMax"):
            for name in self._names:
                _show(model.graph, op_type, [name], [])
        for name, channels in self._averaged.items():
            others = [axis for axis in range(len(graph.tensors[name].shape)) if axis != channels]
            if graph.opset < _AXES_READ:
                _show(model.graph, "ReduceMean", [name], [None], axes=others)
            else:
                axes = numpy_helper.from_array(np.array(others, np.int64), f"axes of {name}")
                model.graph.initializer.append(axes)
                _show(model.graph, "ReduceMean", [name, axes.name], [None])
        showing = multimap((node.input[0], node) for node in model.graph.node)
        nodes = [node for name in graph.inputs for node in showing.get(name, ())]
        for node in graph.model.graph.node:
            nodes += [node, *(reader for name in node.output for reader in showing.get(name, ()))]
        refill(model.graph.node, nodes)
        return model


def _show(
    graph: onnx.GraphProto, op_type: str, inputs: Sequence[str], shape: Sequence[int | None], **attributes: Any
) -> None:
    """Add a reduction to ``graph`` whose result, float32 of ``shape``, is one of the outputs."""
    output = f"{op_type} of {inputs[0]}"
    graph.node.append(helper.make_node(op_type, inputs, [output], keepdims=0, **attributes))
    graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))


def _activations(graph: Graph) -> list[str]:
    """Non-empty float32 tensors that operators read or make, without those inside composites."""
    outputs = (name for node in graph.nodes for name in node.outputs if name)
    return [name for name in dict.fromkeys((*graph.inputs, *outputs)) if _has_range(graph, name)]


def _has_range(graph: Graph, name: str) -> bool:
    tensor = graph.tensors[name]
    return tensor.dtype == "float32" and tensor.static and tensor.nbytes > 0


def _averaged(graph: Graph, names: Collection[str]) -> dict[str, int]:
    """Those of ``names`` that an operator with a correctable bias reads, with the axis of its channels.

    Excludes tensors whose readers differ in the axis."""
    found = ((node.inputs[0], corrected_axis(graph, node)) for node in graph.nodes if node.inputs)
    axes = multimap((name, axis) for name, axis in found if axis is not None)
    return {name: axes[name][0] for name in names if len({*axes.get(name, ())}) == 1}
