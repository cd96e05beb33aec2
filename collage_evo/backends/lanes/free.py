"""Operators that cost nothing where memory is laid out for them: takes a graph, gives Concats and Splits as views."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from collage_evo.backends.lanes.plan import View
from collage_evo.graph.ir import Graph, Node

ALIGNMENT = 64
"""Bytes of a cache line: a view begins on one, as a buffer does, which libraries' vector loads like."""


@dataclass(frozen=True)
class Free:
    """Where the tensors lie that such a node joins or cuts; ``copied`` come from outside and are copied there."""

    views: Mapping[str, View]
    copied: Mapping[str, View]


def free_nodes(graph: Graph) -> Mapping[int, Free]:
    """Nodes that need not run if tensors lie inside others.

    A Concat's inputs lie in its output, a Split's outputs in its input; each is one stretch of memory that begins on
    a cache line. A tensor lies in one other at most, which may lie in a third one. No input or output of ``graph`` is
    a view: their memory is the caller's.
    """
    found: dict[int, Free] = {}
    taken: set[str] = set()
    for node in graph.nodes:
        if (node.op_type, node.domain) == ("Concat", ""):
            views = _joined(graph, node)
        elif (node.op_type, node.domain) == ("Split", ""):
            views = _cut(graph, node)
        else:
            continue
        copied = {name: views.pop(name) for name in graph.inputs if name in views}
        if views and not views.keys() & taken:
            found[node.index] = Free(views, copied)
            taken.update(views)
    return found


def _joined(graph: Graph, node: Node) -> dict[str, View]:
    fixed = {*graph.constants, *graph.outputs}
    if fixed.intersection(node.inputs) or len({*node.inputs}) < len(node.inputs):
        return {}
    return _stretches(graph, node.outputs[0], node.inputs, node.attributes["axis"])


def _cut(graph: Graph, node: Node) -> dict[str, View]:
    whole = node.inputs[0]
    if whole in graph.constants or any(name in graph.outputs for name in node.outputs):
        return {}
    return _stretches(graph, whole, node.outputs, node.attributes.get("axis", 0))


def _stretches(graph: Graph, whole: str, parts: tuple[str, ...], axis: int) -> dict[str, View]:
    """``parts`` as views that lie in ``whole`` one behind the other; none if one of them could not."""
    tensor = graph.tensors[whole]
    axis %= max(1, len(tensor.shape))
    if not all(parts) or math.prod(tensor.shape[:axis]) != 1:
        return {}
    ends = [0, *accumulate(graph.tensors[name].shape[axis] for name in parts)]
    views = {name: View(whole, axis, *stretch) for name, stretch in zip(parts, pairwise(ends), strict=True)}
    row = math.prod(tensor.shape[axis + 1 :]) * np.dtype(tensor.dtype).itemsize
    return views if all(view.start * row % ALIGNMENT == 0 for view in views.values()) else {}


def makers(graph: Graph, tensor: str, free: Mapping[int, Free]) -> Iterator[int]:
    """The nodes that have to run before ``tensor`` is there, where those of ``free`` do not run."""
    index = graph.producer.get(tensor, -1)
    if index in free:
        for name in dict.fromkeys(graph.nodes[index].inputs):
            yield from makers(graph, name, free)
    elif index >= 0:
        yield index
