"""Cuts a region for lanes: takes its model as a graph, gives the plan and a model for each part.

``branches``: what does not wait for each other runs in different lanes.
"""

from __future__ import annotations

import onnx

from collage_evo.backends.lanes.assign import schedule
from collage_evo.backends.lanes.free import resolved
from collage_evo.backends.lanes.plan import LanePlan, Part, View
from collage_evo.backends.lanes.work import Work
from collage_evo.errors import InputError
from collage_evo.graph.extract import extract
from collage_evo.graph.ir import Graph, NodeSet

LEAST_GAIN = 0.1
"""How much faster each further lane has to make a region by the estimate, as a fraction of one lane's speed. Of the
operators of whole networks, each run by two threads, those that share worst still gain twice as much."""


def cut_branches(graph: Graph, lanes: int) -> tuple[LanePlan, tuple[onnx.ModelProto, ...]]:
    """A plan that runs ``graph``, a region's own model, on ``lanes`` lanes, and a model for each part, in its order.

    Parts are few and large: connected or not, they are what a lane runs between two handoffs. A Concat that joins
    what several parts make is part of none of them where they can write into its output, and a Split where they can
    read its input.

    Raises:
        InputError: there is too little in ``graph`` to run side by side.
    """
    if not all(tensor.static for tensor in graph.tensors.values()):
        raise InputError("it has tensors whose sizes are not known before a run")
    if lanes < 2 or not graph.nodes:
        raise InputError("it takes two lanes to run anything side by side")
    work = Work.of(graph)
    groups, timeline = schedule(work, lanes)
    if timeline.makespan_ms * (1 + LEAST_GAIN * (lanes - 1)) > work.serial_ms:
        gain = work.serial_ms / timeline.makespan_ms
        raise InputError(f"too little of it could run side by side: by estimate {gain:.2f} times as fast as one core")
    parts = tuple(groups.nodes[group] for group in timeline.order)
    inside, views = _placed(work, parts)
    number = {lane: place for place, lane in enumerate(dict.fromkeys(groups.lane[group] for group in timeline.order))}
    steps = tuple(
        Part(number[groups.lane[group]], *graph.boundary(nodes))
        for group, nodes in zip(timeline.order, inside, strict=True)
    )
    return _plan(graph, steps, views), tuple(extract(graph, nodes) for nodes in inside)


def _placed(work: Work, parts: tuple[NodeSet, ...]) -> tuple[list[NodeSet], dict[str, View]]:
    """``parts`` with those free nodes that lie inside one of them, and the views of all others."""
    graph = work.graph
    # What lies inside a part is left to its library. A part that writes into what it reads would wait for itself.
    inside = [nodes | graph.ancestors(nodes) & graph.descendants(nodes) for nodes in parts]
    views: dict[str, View] = {}
    for index in sorted(work.free):
        concat = graph.nodes[index].op_type == "Concat"
        around = (graph.pred if concat else graph.succ)[index]
        taken = any(nodes >> index & 1 for nodes in inside)
        home = next((part for part, nodes in enumerate(inside) if not around & ~nodes), None)
        if home is not None and not taken:
            inside[home] |= 1 << index
        elif not taken:
            views.update(work.free[index])
    return inside, resolved(views)


def _plan(graph: Graph, steps: tuple[Part, ...], views: dict[str, View]) -> LanePlan:
    names = [*graph.inputs, *graph.outputs, *(name for step in steps for name in (*step.inputs, *step.outputs))]
    names += [name for view, found in views.items() for name in (view, found.parent)]
    tensors = {name: graph.tensors[name] for name in dict.fromkeys(names)}
    inputs = tuple(name for name in graph.inputs if name not in graph.constants)
    used = 1 + max(step.lane for step in steps)
    return LanePlan(used, steps, tensors, views, inputs, graph.outputs)
