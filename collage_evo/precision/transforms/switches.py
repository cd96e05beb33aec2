"""Switches: a model in float32 in which chosen operators compute in lower precisions, others in each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.convert.extract import import_domains
from collage_evo.graph.ir.graph import Graph, Node, NodeSet
from collage_evo.graph.ir.operators import CONTRIBUTED, HEAVY
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import refill
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.quantise.scales import Scale
from collage_evo.precision.transforms.transform import Rounding, Transform


class Switches:
    """The model of ``graph``, loaded once, with a switch for each transform at the nodes where ``tried`` has it.

    Args:
        graph: the normalised model.
        tried: transforms with the nodes that they can be switched on at.
        ranges: of its activations.
        threads: of the reference that runs it.

    Raises:
        InputError: the reference cannot load it.
    """

    def __init__(self, graph: Graph, tried: Mapping[Transform, NodeSet], ranges: Ranges, threads: int = 1) -> None:
        self._graph, self._ranges = graph, ranges
        self._reference = Reference(_with_switches(graph, tried, ranges), threads)

    def run(self, sample: Mapping[str, Any], on: Iterable[tuple[int, Transform]] = ()) -> list[Any]:
        """The outputs on ``sample`` with these nodes in lower precisions, by default with none.

        Raises:
            InputError: the model fails on the sample.
        """
        inputs = dict(sample)
        for index, transform in on:
            node = self._graph.nodes[index]
            inputs |= transform.constants(self._graph, node, self._ranges)
            inputs[_switch(node, transform)] = np.array(True)
        return self._reference.run(inputs)


def transforms_at(nodes_of: Mapping[Transform, NodeSet], node: int) -> list[Transform]:
    """The transforms of ``nodes_of`` that have ``node``."""
    return [transform for transform, nodes in nodes_of.items() if nodes >> node & 1]


def _with_switches(graph: Graph, tried_at: Mapping[Transform, NodeSet], ranges: Ranges) -> onnx.ModelProto:
    """The model with a switch for each trial. Switches and weights are inputs with defaults: off, and exact."""
    model = deepcopy(graph.model)
    protos: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    defaults: dict[str, int] = {}
    for node in graph.nodes:
        copies = [deepcopy(proto) for proto in node.protos]
        behind: list[onnx.NodeProto] = []
        tried = {_switch(node, one): one.trial(graph, node, ranges) for one in transforms_at(tried_at, node.index)}
        floats = [place for place, name in enumerate(node.outputs) if name and graph.tensors[name].dtype == "float32"]
        defaults |= dict.fromkeys(tried, TensorProto.BOOL)
        constants |= {switch: np.array(False) for switch in tried}
        for switch, trial in tried.items():
            for position, through in trial.reads.items():
                rounded = f"{switch} {position}"
                protos.append(_rounding(copies[0].input[position], rounded, switch, through, constants))
                copies[0].input[position] = rounded
            for place in floats if trial.makes else ():
                name, copies[0].output[place] = copies[0].output[place], f"{switch} exact {place}"
                behind.insert(0, _rounding(copies[0].output[place], name, switch, trial.makes, constants))
        plain = deepcopy(copies[0])
        for switch, instead in ((switch, trial.instead) for switch, trial in tried.items() if trial.instead):
            other, numbers = instead(plain)
            copies[0].CopyFrom(_choice(switch, plain.output[0], other, [deepcopy(copies[0])], numbers))
        protos += [*copies, *behind]
        if node.op_type in HEAVY and tried:
            defaults |= {name: TensorProto.FLOAT for name in node.inputs[1:] if name in graph.constants}
    refill(model.graph.node, protos)
    import_domains(model, {CONTRIBUTED: 1})
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    for name, type_ in defaults.items():
        shape = constants[name].shape if name in constants else graph.constants[name].shape
        model.graph.input.append(helper.make_tensor_value_info(name, type_, shape))
    return model


def _switch(node: Node, transform: Transform) -> str:
    return f"switch {transform.arithmetic} {node.index}"


def _rounding(
    source: str, rounded: str, switch: str, through: Rounding, constants: dict[str, np.ndarray]
) -> onnx.NodeProto:
    """``source``, rounded through another type if ``switch`` is on, else unchanged; adds its ``constants``."""
    inner = f"{rounded} inner"
    if isinstance(through, Scale):
        scale, zero = np.array(through.scale), np.array(through.zero_point)
        parts: dict[str, np.ndarray] = {f"{rounded} scale": scale, f"{rounded} zero": zero}
        constants |= parts
        there = helper.make_node("QuantizeLinear", [source, *parts], [inner])
        back = helper.make_node("DequantizeLinear", [inner, *parts], [rounded])
    else:
        there = helper.make_node("Cast", [source], [inner], to=through)
        back = helper.make_node("Cast", [inner], [rounded], to=TensorProto.FLOAT)
    return _choice(switch, rounded, [there, back], [helper.make_node("Identity", [source], [rounded])])


def _choice(
    switch: str,
    target: str,
    on: Sequence[onnx.NodeProto],
    off: Sequence[onnx.NodeProto],
    constants: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> onnx.NodeProto:
    """An If that makes the tensor ``target`` by ``on`` if ``switch`` is on, else by ``off``.

    ``constants`` are those of ``on``, inside its branch: the reference does not treat outer tensors as constant, and
    multiplies by another kernel.
    """
    branches = []
    for word, nodes in (("on", on), ("off", off)):
        nodes[-1].output[0] = inner = f"{switch} {target} {word}"
        value = helper.make_tensor_value_info(inner, TensorProto.FLOAT, None)
        branches.append(helper.make_graph(nodes, inner, [], [value]))
    branches[0].initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return helper.make_node("If", [switch], [target], then_branch=branches[0], else_branch=branches[1])
