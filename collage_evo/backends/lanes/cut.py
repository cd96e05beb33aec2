"""Cuts a region for lanes: takes its model as a graph, gives the plan and a model for each part.

``branches``: what does not wait for each other runs in different lanes.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from collage_evo.backends.lanes.assign import schedule
from collage_evo.backends.lanes.estimate import node_ms
from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View, root
from collage_evo.backends.lanes.work import Work
from collage_evo.errors import InputError
from collage_evo.graph.extract import extract
from collage_evo.graph.ir import Graph, NodeSet

LEAST_GAIN = 0.1
"""How much faster each further lane has to make a region by the estimate, as a fraction of one lane's speed. Of the
operators of whole networks, each run by two threads, those that share worst still gain twice as much."""


def cut_branches(graph: Graph, lanes: int, width: int = 1) -> tuple[LanePlan, tuple[onnx.ModelProto, ...]]:
    """A plan that runs ``graph``, a region's own model, on ``lanes`` lanes of ``width`` cores.

    With it a model for each part, in its order. Parts are few and large: connected or not, they are what a lane runs
    between two handoffs. A Concat that joins what several parts make is part of none of them where they can write
    into its output, and a Split where they can read its input.

    Raises:
        InputError: there is too little in ``graph`` to run side by side.
    """
    if not all(tensor.static for tensor in graph.tensors.values()):
        raise InputError("it has tensors whose sizes are not known before a run")
    if lanes < 2 or not graph.nodes:
        raise InputError("it takes two lanes to run anything side by side")
    work = Work.of(graph, node_ms(graph, width))
    groups, timeline = schedule(work, lanes)
    if timeline.makespan_ms * (1 + LEAST_GAIN * (lanes - 1)) > work.serial_ms:
        gain = work.serial_ms / timeline.makespan_ms
        raise InputError(f"too little of it could run side by side: by estimate {gain:.2f} times as fast as one lane")
    inside, between = _placed(work, tuple(groups.nodes[group] for group in timeline.order))
    views = {name: view for index in between for name, view in work.free[index].views.items()}
    number = {lane: place for place, lane in enumerate(dict.fromkeys(groups.lane[group] for group in timeline.order))}
    parts = [
        Part(number[groups.lane[group]], *graph.boundary(nodes))
        for group, nodes in zip(timeline.order, inside, strict=True)
    ]
    busy = {lane: sum(ms for ms, own in zip(groups.ms, groups.lane, strict=True) if own == lane) for lane in number}
    idlest = number[min(number, key=lambda lane: (busy[lane], number[lane]))]
    copied = [(source, view) for index in between for source, view in work.free[index].copied.items()]
    copies = [Copy(idlest, source, v.parent, v.axis, v.start, v.stop, join=True) for source, v in copied]
    return _plan(graph, _with_copies(parts, copies, views), views), tuple(extract(graph, nodes) for nodes in inside)


def _placed(work: Work, parts: tuple[NodeSet, ...]) -> tuple[list[NodeSet], list[int]]:
    """``parts`` with those free nodes that lie inside one of them, and all others."""
    graph = work.graph
    # What lies inside a part is left to its library. A part that writes into what it reads would wait for itself.
    inside = [nodes | graph.ancestors(nodes) & graph.descendants(nodes) for nodes in parts]
    between: list[int] = []
    for index in sorted(work.free):
        concat = graph.nodes[index].op_type == "Concat"
        around = (graph.pred if concat else graph.succ)[index]
        home = next((part for part, nodes in enumerate(inside) if not around & ~nodes), None)
        if home is not None:
            inside[home] |= 1 << index
        elif not any(nodes >> index & 1 for nodes in inside):
            between.append(index)
    return inside, between


def _with_copies(parts: list[Part], copies: list[Copy], views: Mapping[str, View]) -> tuple[Part | Copy, ...]:
    """``copies`` before the first part that reads what they fill, or last."""
    steps: list[Part | Copy] = [*parts]
    for copy in copies:
        filled = root(views, copy.target)
        reads = (isinstance(step, Part) and any(root(views, n) == filled for n in step.inputs) for step in steps)
        steps.insert(next((place for place, read in enumerate(reads) if read), len(steps)), copy)
    return tuple(steps)


def _plan(graph: Graph, steps: tuple[Part | Copy, ...], views: Mapping[str, View]) -> LanePlan:
    names = [*graph.inputs, *graph.outputs, *views, *(view.parent for view in views.values())]
    for step in steps:
        names += (*step.inputs, *step.outputs) if isinstance(step, Part) else (step.source, step.target)
    tensors = {name: graph.tensors[name] for name in dict.fromkeys(names)}
    used = 1 + max(step.lane for step in steps)
    return LanePlan(used, steps, tensors, views, graph.inputs, graph.outputs)
