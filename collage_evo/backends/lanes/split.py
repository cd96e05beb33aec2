"""Cuts a region along a dimension: takes its graph, gives portions of equal work that meet once, at the end.

Each lane computes a stretch of every output, along one axis, and of every tensor before that as much as this needs.
Convolutions need some elements beyond the stretch's edges, which both lanes compute (as in Alwani and others,
*Fused-layer CNN accelerators*, 2016); products, elementwise operators and the like do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import onnx

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View
from collage_evo.backends.lanes.portion import Portion, PortionModel, node_effort
from collage_evo.backends.lanes.spans import AXES, Span
from collage_evo.errors import InputError
from collage_evo.graph.ir import COMPOSITE, Graph, NodeSet, Tensor, members

MOST_EXTRA = 0.15
"""A split whose longest portion is this much longer than an equal share is not tried. Chosen: on a model of
which no schedule of lanes can win more, such as Inception v1 (docs/results.md), it wins nothing."""
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
    return _planned(graph, _portions(graph, graph.all_nodes, lanes, kind, most_extra))


def refusal(graph: Graph, nodes: NodeSet, lanes: int, kind: str) -> str:
    """Why a region of ``graph`` is not split that way; empty where it is. No model is written for that."""
    try:
        _portions(graph, nodes, lanes, kind, MOST_EXTRA)
    except InputError as error:
        return str(error)
    return ""


def _portions(graph: Graph, nodes: NodeSet, lanes: int, kind: str, most_extra: float) -> list[Portion]:
    """One for each lane."""
    chosen = [graph.nodes[index] for index in members(nodes)]
    if any(entry.version < _LEAST_OPSET for entry in graph.model.opset_import if entry.domain in ("", "ai.onnx")):
        raise InputError(f"operators of an opset before {_LEAST_OPSET} are not cut")
    if any(node.domain == COMPOSITE for node in chosen):
        raise InputError("operators with bodies or open shapes are not cut")
    names = {name for node in chosen for name in (*node.inputs, *node.outputs) if name}
    if not all(graph.tensors[name].static and math.prod(graph.tensors[name].shape) for name in names):
        raise InputError("a tensor has no static shape")
    shares = {name: _shares(graph.tensors[name], lanes, kind) for name in graph.boundary(nodes)[1]}
    portions = [
        Portion.of(graph, nodes, {name: spans[lane] for name, spans in shares.items()}) for lane in range(lanes)
    ]
    whole = sum(node_effort(graph, node) for node in chosen)
    extra = lanes * max(portion.effort for portion in portions) / whole - 1
    if extra > most_extra:
        raise InputError(f"the longest portion by {kind} is {extra:.0%} longer than an equal share")
    return portions


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
    """Each lane copies what it needs to its own buffer, where that is not one stretch of memory as it is.

    A library that is given a whole tensor and cuts it itself takes longer, often as long as for a small convolution.
    """
    tensors = {name: graph.tensors[name] for name in (*graph.inputs, *graph.outputs)}
    views: dict[str, View] = {}
    steps: list[Part | Copy] = []
    models = []
    for lane, portion in enumerate(portions):
        cut = {name: span for name, span in portion.there.items() if name in graph.inputs and span is not None}
        called = {name: f"{name}.lane{lane}" for name in (*cut, *portion.outputs)}
        joins = []
        for name, span in (*cut.items(), *portion.outputs.items()):
            part = span.of(graph.tensors[name])
            tensors[called[name]] = replace(part, name=called[name])
            if math.prod(part.shape[: span.axis]) == 1:
                views[called[name]] = View(name, span.axis, span.start, span.stop)
            elif name in cut:
                steps.append(Copy(lane, name, called[name], span.axis, span.start, span.stop, join=False))
            else:
                joins.append(Copy(lane, called[name], name, span.axis, span.start, span.stop, join=True))
        given = {name: called.get(name, name) for name in graph.inputs if name in portion.there}
        model = PortionModel(graph, portion, {**given, **called}).write()
        steps += [Part(lane, tuple(given.values()), tuple(called[name] for name in portion.outputs)), *joins]
        models.append(model)
    plan = LanePlan(len(portions), tuple(steps), tensors, views, graph.inputs, graph.outputs)
    return plan, tuple(models)
