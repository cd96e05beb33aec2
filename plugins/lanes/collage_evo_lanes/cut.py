"""Cutting of a region for lanes: the plan, and a model for each part.

Operators that do not wait for each other run in different lanes.
"""

from __future__ import annotations

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.graph import Graph
from collage_evo_lanes.assign import schedule
from collage_evo_lanes.estimate import node_ms
from collage_evo_lanes.plan import LanePlan, Part
from collage_evo_lanes.work import Work

LEAST_GAIN = 0.1
"""How much faster each further lane has to make a region by the estimate, as a fraction of one lane's speed. Of the
operators of whole networks, each run by two threads, those that share worst still gain twice as much."""


def cut_branches(graph: Graph, lanes: int, width: int = 1) -> tuple[LanePlan, tuple[onnx.ModelProto, ...]]:
    """A plan that runs ``graph``, a region's own model, on ``lanes`` lanes of ``width`` cores.

    Returned with a model for each part, in its order. Parts are few and large: a part, connected or not, is
    everything that a lane runs between two handoffs.

    Raises:
        InputError: there is too little in ``graph`` to run side by side.
        ValueError: ``graph`` has tensors that no plan can hold.
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
    sets = [groups.nodes[group] for group in timeline.order]
    used = list(dict.fromkeys(groups.lane[group] for group in timeline.order))
    lane_of = [used.index(groups.lane[group]) for group in timeline.order]
    parts = tuple(Part(lane, *graph.boundary(nodes)) for lane, nodes in zip(lane_of, sets, strict=True))
    return plan_of(graph, parts), tuple(extract(graph, nodes) for nodes in sets)


def plan_of(graph: Graph, parts: tuple[Part, ...]) -> LanePlan:
    """The plan of all of ``graph`` as ``parts``."""
    names = dict.fromkeys(name for part in parts for name in (*part.inputs, *part.outputs))
    tensors = {name: graph.tensors[name] for name in (*graph.inputs, *names)}
    return LanePlan(1 + max(part.lane for part in parts), parts, tensors, graph.inputs, graph.outputs)
