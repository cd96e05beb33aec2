"""Bounds of the indices in a model: whether they may point outside its tensors, and which inputs need limits.

The reference run has shown that constants are valid. So are values that follow from shapes, for the shapes of a run:
libraries get no others, or refuse them. For some computed indices it follows whatever the inputs hold. Other indices
are an input of the model, as tokens are: each request is checked against their limits. All remaining ones may hold
anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto
from onnx.inliner import inline_local_functions

from collage_evo.graph.check.index_uses import IndexUse, attribute, uses
from collage_evo.graph.check.value_ranges import RELAYS, Values
from collage_evo.graph.convert.static import STANDARD, inferred, reads
from collage_evo.graph.ir.elements import IN_32_BITS
from collage_evo.graph.ir.graph import Graph, GraphCache, Node, NodeSet, members
from collage_evo.graph.ir.weights import bodies
from collage_evo.multimap import multimap

Limits = Mapping[str, tuple[int, int]]
"""For inputs of a model the least value, and one more than the greatest."""

_FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_RELAYED = 64


@dataclass(frozen=True)
class IndexVerdict:
    """An operator's indices of unknown range, as text, and the limits of inputs."""

    stray: str = ""
    limits: Limits = field(default_factory=dict)


def stray_index(graph: Graph, node: Node) -> str:
    """Which indices of ``node`` may point outside its tensors in some request; empty if none."""
    return next((verdict.stray for verdict in _verdicts(graph)[node.index] if verdict.stray), "")


def limits_of(graph: Graph, nodes: NodeSet) -> Limits:
    """Limits of the model's inputs under which no index in ``nodes`` that they provide points outside."""
    return joined(verdict.limits for index in members(nodes) for verdict in _verdicts(graph)[index])


def indices_of_model(model: onnx.ModelProto) -> IndexVerdict:
    """The verdict on a whole model as the user has it. With its shapes fixed, it must have run once."""
    flat = inline_local_functions(model) if model.functions else model
    values = Values(flat, inferred(flat))
    verdicts = [_judge(values, node) for node in values.nodes]
    stray = next((verdict.stray for verdict in verdicts if verdict.stray), "")
    return IndexVerdict(stray, joined(verdict.limits for verdict in verdicts))


def limits_of_32_bits(graph: Graph, nodes: NodeSet) -> Limits:
    """Limits of the model's inputs under which the whole numbers that ``nodes`` read of them fit into 32 bits."""
    values = _values(graph)
    read = _read_exactly(proto for index in members(nodes) for proto in graph.nodes[index].protos)
    whole = (name for name in graph.boundary(nodes)[0] if name in read and graph.tensors[name].dtype == "int64")
    sources = (_source(values, name) for name in whole)
    return {name: IN_32_BITS for name in sources if name and values.dtype(name) == "int64"}


def limits_of_32_bits_of_model(model: onnx.ModelProto) -> Limits:
    """:func:`limits_of_32_bits` for a whole model as the user has it."""
    read = _read_exactly(model.graph.node)
    wide = (v.name for v in model.graph.input if v.type.tensor_type.elem_type == onnx.TensorProto.INT64)
    return {name: IN_32_BITS for name in wide if name in read}


def _read_exactly(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Tensors that ``nodes`` read, except to cast them to floats, which takes all bits into account."""
    others = (node for node in nodes if node.op_type != "Cast" or attribute(node, "to", 0) not in _FLOATS)
    return {name for node in others for name in reads(node)}


def joined(limits: Iterable[Limits]) -> dict[str, tuple[int, int]]:
    """The intersection of ``limits``."""
    every = multimap(pair for each in limits for pair in each.items())
    return {name: (max(low for low, _ in each), min(high for _, high in each)) for name, each in every.items()}


@GraphCache
def _verdicts(graph: Graph) -> list[list[IndexVerdict]]:
    """The verdicts on the operators of each node."""
    values = _values(graph)
    return [[_judge(values, proto) for proto in node.protos] for node in graph.nodes]


@GraphCache
def _values(graph: Graph) -> Values:
    return Values(graph.model, graph.model.graph.value_info)


def _judge(values: Values, node: onnx.NodeProto) -> IndexVerdict:
    inside = _in_bodies(node, values)
    if inside.stray:
        return IndexVerdict(f"{node.op_type}: {inside.stray}")
    limits, stray = _own_limits(values, node)
    if stray:
        what = "the model's input" if stray in values.inputs else "computed"
        return IndexVerdict(f"{node.op_type}: {stray} is {what}, and may lead out of what it is an index into")
    return IndexVerdict("", joined([inside.limits, limits]))


def _own_limits(values: Values, node: onnx.NodeProto) -> tuple[Limits, str]:
    """Limits under which the indices of ``node``, outside of its bodies, are valid, and one that none makes valid."""
    limits = list[Limits]()
    for use in (*uses(node, values.shape), *_unknown_uses(values, node)):
        if _inside(values, use):
            continue
        source = _source(values, use.name) if use.refused and len(use.high) == 1 else ""
        if not source:
            return {}, use.name
        limits.append({source: (use.low[0], use.high[0])})
    return joined(limits), ""


def _unknown_uses(values: Values, node: onnx.NodeProto) -> Iterator[IndexUse]:
    """Integer inputs of an operator that ONNX does not describe: any may be indices."""
    if node.domain not in (*STANDARD, "ai.onnx.ml"):
        named = {use.name for use in uses(node, values.shape)}
        integers = (name for name in node.input if name and values.dtype(name) in ("int32", "int64"))
        yield from (IndexUse(name) for name in integers if name not in named)


def _inside(values: Values, use: IndexUse) -> bool:
    """Whether the values are valid in every request."""
    if not use.high:
        return values.settled(use.name)
    if values.around is None and values.settled(use.name) and values.constant(use.name) is None:
        return True  # it was valid in the run that the model has completed on inputs of these shapes
    constants = values.constant(use.name)
    if constants is not None:
        low, high = np.array(use.low), np.array(use.high)
        return bool(((constants >= low) & (constants < high)).all())
    range_ = values.range(use.name)
    return range_ is not None and max(use.low) <= range_[0] and range_[1] < min(use.high)


def _source(values: Values, name: str) -> str:
    """The input of the model that holds the same values; empty if there is none."""
    for _ in range(_RELAYED):
        values = values.home(name)
        if name in values.inputs:
            return "" if values.around else name
        node = values.maker.get(name)
        if node is None or node.op_type not in RELAYS or node.domain not in STANDARD:
            return ""
        # On its way a number may be rounded up to the next one, a negative one become large, any become true.
        if node.op_type == "Cast" and not TensorProto.DataType.Name(attribute(node, "to", 0)).startswith("INT"):
            return ""
        name = node.input[0]
    return ""


def _in_bodies(node: onnx.NodeProto, around: Values) -> IndexVerdict:
    """The verdict on the indices in the bodies of ``node``.

    A limit holds for every request, whether a body runs or not: it has to be one of each branch.
    """
    verdicts = [_in_body(body, around) for body in bodies(node)]
    stray = next((verdict.stray for verdict in verdicts if verdict.stray), "")
    limits = joined(verdict.limits for verdict in verdicts)
    if limits and not stray and (node.op_type != "If" or any(verdict.limits != limits for verdict in verdicts)):
        stray = f"{next(iter(limits))} is an index in a body that may not run"
    return IndexVerdict(stray, {} if stray else limits)


def _in_body(body: onnx.GraphProto, around: Values) -> IndexVerdict:
    values, limits = Values(onnx.ModelProto(graph=body), body.value_info, around=around), list[Limits]()
    for node in body.node:
        own, stray = _own_limits(values, node)
        if stray:
            return IndexVerdict(f"{node.op_type} in its body: {stray} is computed")
        inner = _in_bodies(node, values)
        if inner.stray:
            return inner
        limits += own, inner.limits
    return IndexVerdict("", joined(limits))
