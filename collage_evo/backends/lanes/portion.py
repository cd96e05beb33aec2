"""A share of a region: takes stretches of its outputs, gives what each operator does for them, and a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.backends.lanes.spans import Need, Span, Work, joined, proper
from collage_evo.backends.lanes.split_rules import work_of
from collage_evo.graph.ir import Graph, Node, NodeSet, Tensor, members
from collage_evo.graph.roofline import multiply_adds


@dataclass(frozen=True)
class Portion:
    """One lane's share: what it makes of the outputs, what of each tensor is there, and each node's work.

    A node that is not in ``works`` has no work here; None stands for a node that is computed whole.
    """

    outputs: Mapping[str, Span]
    there: Mapping[str, Need]
    works: Mapping[int, Work | None]
    effort: float

    @classmethod
    def of(cls, graph: Graph, nodes: NodeSet, outputs: Mapping[str, Span]) -> Portion:
        """Goes back from the outputs of ``nodes``: of each tensor what its readers need together.

        Raises:
            InputError: an operator is not cut that way.
        """
        there: dict[str, Need] = {name: proper(span, graph.tensors[name]) for name, span in outputs.items()}
        works: dict[int, Work | None] = {}
        effort = 0.0
        for index in reversed(list(members(nodes))):
            node = graph.nodes[index]
            asked = [there[name] for name in node.outputs if name in there]
            if not asked:
                continue
            span = asked[0]
            for other in asked[1:]:
                span = joined(span, other)
            span = proper(span, graph.tensors[node.outputs[0]])
            work = None if span is None else work_of(graph, node, span)
            made = span if work is None or work.makes is None else work.makes
            there.update((name, proper(made, graph.tensors[name])) for name in node.outputs if name)
            works[node.index] = work
            effort += node_effort(graph, node) * _part(made, graph.tensors[node.outputs[0]])
            for name, need in _read(graph, node, work):
                if need is None or need.size:
                    there[name] = joined(there[name], need) if name in there else need
        return cls(outputs, there, works, effort)


def _part(need: Need, tensor: Tensor) -> float:
    return 1.0 if need is None else need.size / tensor.shape[need.axis]


def _read(graph: Graph, node: Node, work: Work | None) -> Iterator[tuple[str, Need]]:
    """What a node needs of the tensors that are no constants."""
    for position, name in enumerate(node.inputs):
        if name and name not in graph.constants and (work is None or position not in work.values):
            yield name, None if work is None else proper(work.needs[position], graph.tensors[name])


def node_effort(graph: Graph, node: Node) -> float:
    """A rough count: multiply-adds, and one more for each element that is read or made."""
    touched = sum(math.prod(graph.tensors[name].shape) for name in (*node.inputs, *node.outputs) if name)
    return touched + multiply_adds(graph, 1 << node.index)


class PortionModel:
    """Writes a portion as a model, whose inputs are what the portion needs of the region's.

    ``called`` are the names of its inputs and outputs by those of the region's.
    """

    def __init__(self, graph: Graph, portion: Portion, called: Mapping[str, str]) -> None:
        self._graph, self._portion, self._called = graph, portion, called
        self._slices: dict[tuple[str, Need], str] = {}
        self._constants: dict[tuple[str, Need], str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inside: list[onnx.ValueInfoProto] = []

    def write(self) -> onnx.ModelProto:
        graph, there = self._graph, self._portion.there
        for node in graph.nodes:
            if node.index in self._portion.works:
                self._add(node, self._portion.works[node.index])
        outputs = []
        for name, span in self._portion.outputs.items():
            if there[name] != span:
                self._slice(name, span, self._called[name])
            outputs.append(_declared(span.of(graph.tensors[name]), self._called[name]))
        inputs = [
            _declared(_part_of(graph.tensors[name], there[name]), self._called[name])
            for name in graph.inputs
            if name in there
        ]
        made = helper.make_graph(
            self._nodes, "portion", inputs, outputs, self._initializers, value_info=self._inside
        )
        return helper.make_model(
            made, opset_imports=graph.model.opset_import, ir_version=graph.model.ir_version
        )

    def _name(self, name: str) -> str:
        """What a tensor that is there is called: an output of which there is more has its own name still."""
        outputs, there = self._portion.outputs, self._portion.there
        return name if name in outputs and there[name] != outputs[name] else self._called.get(name, name)

    def _add(self, node: Node, work: Work | None) -> None:
        graph = self._graph
        read = []
        for position, name in enumerate(node.inputs):
            need = None if work is None or not name else proper(work.needs[position], graph.tensors[name])
            if work is not None and position in work.values:
                read.append(self._constant(work.values[position]))
            elif need is not None and not need.size:
                continue
            elif name in graph.constants:
                read.append(self._weight(name, need))
            else:
                read.append(self._cut(name, need) if name else "")
        proto = onnx.NodeProto()
        proto.CopyFrom(node.protos[0])
        changed = {} if work is None else work.attributes
        del proto.input[:], proto.output[:], proto.attribute[:]
        proto.input.extend(read)
        proto.output.extend(self._name(name) for name in node.outputs)
        proto.attribute.extend(a for a in node.protos[0].attribute if a.name not in changed)
        proto.attribute.extend(helper.make_attribute(key, value) for key, value in changed.items())
        self._nodes.append(proto)
        for name in node.outputs:
            if name and self._name(name) not in self._called.values():
                tensor = graph.tensors[name]
                self._inside.append(_declared(_part_of(tensor, self._portion.there[name]), self._name(name)))

    def _cut(self, name: str, need: Need) -> str:
        """The tensor's part that a reader needs, of what is there of it."""
        if self._portion.there[name] == need:
            return self._name(name)
        key = (name, need)
        if key not in self._slices:
            called = f"{name}.part{len(self._slices)}"
            self._slices[key] = self._slice(name, need, called)
            self._inside.append(_declared(_part_of(self._graph.tensors[name], need), called))
        return self._slices[key]

    def _slice(self, name: str, need: Need, called: str) -> str:
        there = self._portion.there[name]
        assert need is not None  # a reader of all of a tensor has all of it there
        start = need.start - (there.start if there is not None else 0)
        bounds = [self._constant(np.array([value])) for value in (start, start + need.size, need.axis)]
        self._nodes.append(helper.make_node("Slice", [self._name(name), *bounds], [called]))
        return called

    def _weight(self, name: str, need: Need) -> str:
        key = (name, need)
        if key not in self._constants:
            called = f"{name}.part{len(self._constants)}" if need is not None else name
            array = self._graph.constants[name]
            array = array if need is None else np.ascontiguousarray(need.cut(array))
            self._initializers.append(numpy_helper.from_array(array, called))
            self._constants[key] = called
        return self._constants[key]

    def _constant(self, value: np.ndarray) -> str:
        called = f"value{len(self._initializers)}.split"
        self._initializers.append(numpy_helper.from_array(value, called))
        return called


def _part_of(tensor: Tensor, need: Need) -> Tensor:
    return tensor if need is None else need.of(tensor)


def _declared(tensor: Tensor, name: str) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_value_info(name, kind, tensor.shape)
