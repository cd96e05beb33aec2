"""Cuts a region that is too long for one cut: takes its graph, gives the plans of consecutive segments as one plan.

Regions of one engine are joined where they meet. What was cut well apart may not be cut as a whole: the further a
convolution's stretch reaches back, the more of it both lanes compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

import onnx

from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View
from collage_evo.errors import InputError
from collage_evo.graph.extract import canonical_names, extract
from collage_evo.graph.ir import Graph, NodeSet, Tensor
from collage_evo.graph.read import build_graph
from collage_evo.patterns.regions import blocks_of

Cut = tuple[LanePlan, tuple[onnx.ModelProto, ...]]
"""What runs in which lane, and a model for each part."""


def cut_in_segments(graph: Graph, cut: Callable[[Graph], Cut]) -> Cut:
    """What ``cut`` gives for ``graph``, or, where it refuses, for its halves, quarters ... one after the other.

    Segments end at points that every path passes.

    Raises:
        InputError: ``cut`` refuses the whole, and a block between two such points.
    """
    try:
        return cut(graph)
    except InputError as refused:
        blocks = blocks_of(graph, graph.all_nodes)
        if len(blocks) < 2:
            raise
        segments: list[_Segment] = []
        middle = len(blocks) // 2
        for half in (blocks[:middle], blocks[middle:]):
            try:
                segments += _segments(graph, half, cut)
            except InputError:
                raise refused from None
        return _joined(graph, segments)


class _Segment:
    """A segment with its plan; ``names``: what tensors at its border are called outside, by their names inside."""

    def __init__(self, graph: Graph, nodes: NodeSet, cut: Callable[[Graph], Cut]) -> None:
        self.plan, self.models = cut(build_graph(extract(graph, nodes)))
        outside = {inside: name for name, inside in canonical_names(graph, nodes).items()}
        self.names = {name: outside[name] for name in (*self.plan.inputs, *self.plan.outputs)}


def _segments(graph: Graph, blocks: Sequence[NodeSet], cut: Callable[[Graph], Cut]) -> list[_Segment]:
    try:
        return [_Segment(graph, reduce(or_, blocks), cut)]
    except InputError:
        if len(blocks) < 2:
            raise
    middle = len(blocks) // 2
    return [*_segments(graph, blocks[:middle], cut), *_segments(graph, blocks[middle:], cut)]


def _joined(graph: Graph, segments: Sequence[_Segment]) -> Cut:
    tensors: dict[str, Tensor] = {name: graph.tensors[name] for name in (*graph.inputs, *graph.outputs)}
    steps: list[Part | Copy] = []
    views: dict[str, View] = {}
    for number, segment in enumerate(segments):
        plan = segment.plan
        names = {name: segment.names.get(name, f"s{number}.{name}") for name in plan.tensors}
        tensors |= {names[name]: replace(tensor, name=names[name]) for name, tensor in plan.tensors.items()}
        views |= {names[name]: replace(view, parent=names[view.parent]) for name, view in plan.views.items()}
        steps += [_renamed(step, names) for step in plan.steps]
    lanes = max(segment.plan.lanes for segment in segments)
    plan = LanePlan(lanes, tuple(steps), tensors, views, graph.inputs, graph.outputs)
    return plan, tuple(model for segment in segments for model in segment.models)


def _renamed(step: Part | Copy, names: Mapping[str, str]) -> Part | Copy:
    if isinstance(step, Copy):
        return replace(step, source=names[step.source], target=names[step.target])
    reads, makes = (tuple(names[name] for name in side) for side in (step.inputs, step.outputs))
    return Part(step.lane, reads, makes)
