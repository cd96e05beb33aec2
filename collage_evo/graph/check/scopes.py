"""Scopes of a model: every operator, also in bodies and functions, with what is known about its tensors there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx.inliner import inline_local_functions

from collage_evo.graph.check.indices import indices_of_model, limits_of
from collage_evo.graph.check.value_ranges import Range, Values
from collage_evo.graph.convert.read import declared_tensor, operator
from collage_evo.graph.convert.static import inferred_model
from collage_evo.graph.ir.elements import IN_32_BITS
from collage_evo.graph.ir.graph import OPAQUE, Graph, GraphCache, Node, Tensor
from collage_evo.graph.ir.weights import array_of, bodies


def operators(model: onnx.ModelProto) -> Iterator[tuple[Graph, Node]]:
    """The operators of ``model``, each with a graph that has the known types, constants and makers.

    These graphs have no neighbours beyond the makers of the operator's inputs; nodes are operators, not composites.
    """
    flat = inline_local_functions(model) if model.functions else model
    typed = inferred_model(flat) or flat
    limits = indices_of_model(flat).limits
    yield from _operators(typed, typed.graph, limits, None, flat.graph.initializer)


def inner_operators(graph: Graph, node: Node) -> Iterator[tuple[Graph, Node]]:
    """The operators in a composite ``node`` of ``graph``, with those inside bodies."""
    inside = onnx.GraphProto(node=node.protos, value_info=graph.model.graph.value_info)
    yield from _operators(graph.model, inside, {}, graph)


@GraphCache
def exact_values(graph: Graph) -> Values:
    """What is known about the values in ``graph`` if a library computes whole numbers exactly.

    The model's input indices are within their limits, and whole numbers of 64 bits fit 32: each request is checked.
    """
    ranges = _given(graph.model.graph.input, limits_of(graph, graph.all_nodes))
    return Values(graph.model, graph.model.graph.value_info, ranges, exact=True)


def settled(graph: Graph, names: Iterable[str]) -> bool:
    """Whether tensors of ``graph`` are the same in every run, so that the checked one had them right."""
    values = exact_values(graph)
    return values.fixed and all(values.settled(name) for name in names if name)


def _given(inputs: Iterable[onnx.ValueInfoProto], limits: Mapping[str, tuple[int, int]]) -> dict[str, Range]:
    wide = {value.name: IN_32_BITS for value in inputs if value.type.tensor_type.elem_type == onnx.TensorProto.INT64}
    return {name: (low, end - 1) for name, (low, end) in {**wide, **limits}.items()}


def _operators(
    model: onnx.ModelProto,
    graph: onnx.GraphProto,
    limits: Mapping[str, tuple[int, int]],
    around: Graph | None,
    weights: Iterable[onnx.TensorProto] = (),
) -> Iterator[tuple[Graph, Node]]:
    """``graph`` is that of ``model``, or a body in the graph ``around``; ``limits`` are of its inputs, and some of
    these may be ``weights``."""
    protos = tuple(graph.node)
    of_graph = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)
    ranges = _given(graph.input, limits) if around is None else {}
    values = Values(of_graph, graph.value_info, ranges, exact_values(around) if around else None, exact=True)
    declared = {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name: array_of(tensor) for tensor in (*weights, *graph.initializer)}
    constants |= _constants(values, protos)
    tensors: dict[str, Tensor] = {name: Tensor(name, a.dtype.name, a.shape) for name, a in constants.items()}
    outside: Mapping[str, Tensor] = around.tensors if around else {}
    for name in {name for proto in protos for name in (*proto.input, *proto.output)} | declared.keys():
        if name and name not in tensors and (name in declared or name not in outside):
            tensors[name] = declared_tensor(name, declared[name]) if name in declared else Tensor(name, OPAQUE, ())
    nodes = tuple(operator(index, proto.name or proto.op_type, proto) for index, proto in enumerate(protos))
    view = Graph(
        model=of_graph,
        nodes=nodes,
        tensors={**outside, **tensors},
        constants={**(around.constants if around else {}), **constants},
        inputs=tuple(value.name for value in graph.input),
        outputs=tuple(value.name for value in graph.output),
    )
    exact_values.put(view, values)
    for node in nodes:
        yield view, node
        for body in bodies(node.protos[0]):
            yield from _operators(model, body, {}, view)


def _constants(values: Values, protos: Sequence[onnx.NodeProto]) -> dict[str, np.ndarray]:
    names = (name for proto in protos if proto.op_type == "Constant" for name in proto.output)
    return {name: value for name in names if (value := values.constant(name)) is not None}
