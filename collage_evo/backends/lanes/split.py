"""Cuts a region along a dimension: takes its graph, gives portions of equal work that meet once, at the end.

Each lane computes a stretch of every output, along one axis, and of every tensor before that as much as this needs.
Convolutions need some elements beyond the stretch's edges, which both lanes compute (as in Alwani and others,
*Fused-layer CNN accelerators*, 2016); products, elementwise operators and the like do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View
from collage_evo.backends.lanes.portion import Portion, PortionModel, node_effort
from collage_evo.backends.lanes.spans import Span
from collage_evo.errors import InputError
from collage_evo.graph.ir import COMPOSITE, Graph, Tensor

AXES: Mapping[str, int] = {"samples": 0, "channels": 1, "rows": 2, "positions": -2}
"""Along which axis of its outputs a region is cut, by the kind of split; from the end if negative."""
MOST_EXTRA = 0.15
"""A split whose longest portion is this much longer than an equal share cannot pay."""
_LEAST_OPSET = 13
"""From here on a softmax is along one axis."""


def split(
    graph: Graph, lanes: int, kind: str, most_extra: float = MOST_EXTRA
) -> tuple[LanePlan, tuple[onnx.ModelProto, ...]]:
    """``graph``, a region's own model, on ``lanes`` lanes that share each output by the axis of ``kind``.

    Returns:
        What runs where, and the model of each part.

    Raises:
        InputError: an operator is not cut that way, an output has too little of the axis, or the longest portion
            is longer than an equal share by more than ``most_extra`` of it.
    """
    if any(node.domain == COMPOSITE for node in graph.nodes):
        raise InputError("operators with bodies or open shapes are not cut")
    if any(entry.version < _LEAST_OPSET for entry in graph.model.opset_import if entry.domain in ("", "ai.onnx")):
        raise InputError(f"operators of an opset before {_LEAST_OPSET} are not cut")
    if not all(tensor.static and math.prod(tensor.shape) for tensor in graph.tensors.values()):
        raise InputError("a tensor has no static shape")
    shares = {name: _shares(graph.tensors[name], lanes, kind) for name in graph.outputs}
    portions = [Portion.of(graph, {name: spans[lane] for name, spans in shares.items()}) for lane in range(lanes)]
    whole = sum(node_effort(graph, node) for node in graph.nodes)
    longest = max(portion.effort for portion in portions)
    if lanes * longest > (1 + most_extra) * whole:
        extra = lanes * longest / whole - 1
        raise InputError(f"the longest portion by {kind} is {extra:.0%} longer than an equal share")
    return _planned(graph, portions)


def _shares(tensor: Tensor, lanes: int, kind: str) -> list[Span]:
    """Stretches of about equal length along the kind's axis."""
    axis, rank = AXES[kind], len(tensor.shape)
    if not -rank <= axis < rank or (kind == "rows" and rank < 3):
        raise InputError(f"output {tensor.name} has no {kind}")
    size = tensor.shape[axis]
    if size < lanes:
        raise InputError(f"output {tensor.name} has {size} {kind} for {lanes} lanes")
    edges = [round(lane * size / lanes) for lane in range(lanes + 1)]
    return [Span(axis % rank, edges[lane], edges[lane + 1]) for lane in range(lanes)]


def _planned(graph: Graph, portions: Sequence[Portion]) -> tuple[LanePlan, tuple[onnx.ModelProto, ...]]:
    tensors = {name: graph.tensors[name] for name in (*graph.inputs, *graph.outputs)}
    views: dict[str, View] = {}
    parts: list[Part] = []
    copies: list[Copy] = []
    models = []

    def place(name: str, span: Span, lane: int) -> str:
        """The name of a part of an input or an output."""
        tensor = span.of(graph.tensors[name])
        called = f"{name}.{lane}"
        tensors[called] = replace(tensor, name=called)
        if _contiguous(tensor, span):
            views[called] = View(name, span.axis, span.start, span.stop)
        return called

    for lane, portion in enumerate(portions):
        given = {}
        for name in graph.inputs:
            need = portion.there.get(name)
            if need is not None and _contiguous(graph.tensors[name], need):
                given[name] = place(name, need, lane), True
            elif name in portion.there:
                given[name] = name, False
        made = {name: place(name, span, lane) for name, span in portion.outputs.items()}
        parts.append(Part(lane, tuple(called for called, _ in given.values()), tuple(made.values())))
        models.append(PortionModel(graph, portion, given, made).write())
        for name, span in portion.outputs.items():
            if made[name] not in views:
                copies.append(Copy(lane, made[name], name, span.axis, span.start, span.stop, join=True))
    plan = LanePlan(len(portions), (*parts, *copies), tensors, views, graph.inputs, graph.outputs)
    return plan, tuple(models)


def _contiguous(tensor: Tensor, span: Span) -> bool:
    return math.prod(tensor.shape[: span.axis]) == 1
