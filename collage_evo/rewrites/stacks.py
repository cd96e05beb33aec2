"""Rewrite ``interleaved-parts``: tensors that are interleaved element by element, stacked and then transposed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.rewrites.common import filled, reshape, sole_reader, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

_SLICE_FROM = 10
"""The version from which Slice has its axes as an input."""
_LEAST = 1024
"""Elements of a part. Chosen: of fewer there is little to win."""


@dataclass(frozen=True)
class _Stack:
    """A Concat of parts that have one element along its axis and all later axes.

    ``cut`` is a Slice behind it that leaves that axis whole, ``turned`` the Transpose behind both; either may be
    missing.
    """

    joined: Node
    axis: int
    cut: Node | None
    turned: Node | None

    @property
    def nodes(self) -> NodeSet:
        return node_set(node.index for node in (self.joined, self.cut, self.turned) if node is not None)

    @property
    def made(self) -> str:
        return (self.turned or self.cut or self.joined).outputs[0]


class InterleavedParts:
    """Concat along the last axis of parts with one element there, as images are made of planes channel by channel.

    Libraries copy such parts element by element. Stacked, each part is one contiguous copy, and a Transpose, for
    which they are fast, moves the axis to its position; often one follows already that moves it back to the front.
    """

    name = "interleaved-parts"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            if (stack := _stack(graph, node)) is not None:
                yield stack.nodes

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        stack, draft = _stack(graph, graph.nodes[next(members(nodes))]), Draft(graph)
        assert stack is not None
        before = graph.tensors[stack.joined.outputs[0]].shape[: stack.axis]
        x = draft.node("Concat", [reshape(draft, part, (1, *before)) for part in stack.joined.inputs], axis=0)
        shape = graph.tensors[stack.joined.outputs[0]].shape
        if stack.cut is not None:
            shape = graph.tensors[stack.cut.outputs[0]].shape
            cuts = _cuts(graph, stack.cut)
            starts, ends, axes, steps = cuts[:, cuts[2] < stack.axis]
            if len(axes):  # it may name only axes that it leaves whole
                x = draft.node("Slice", [x, *(draft.constant(values) for values in (starts, ends, axes + 1, steps))])
        order = range(len(shape)) if stack.turned is None else stack.turned.attributes["perm"]
        places = [(axis + 1) % (stack.axis + 1) for axis in order if axis <= stack.axis]
        if not _in_order(places, (shape[stack.axis], *shape[: stack.axis])):
            x = draft.node("Transpose", [x], perm=places)
        reshape(draft, x, graph.tensors[stack.made].shape, stack.made)
        return draft.finished()


def _stack(graph: Graph, node: Node) -> _Stack | None:
    """``node`` as such a Concat, with the operators behind it; None if it is none."""
    if not standard(node, "Concat") or not filled(graph, node) or set(node.inputs) & graph.constants.keys():
        return None
    shape = graph.tensors[node.outputs[0]].shape
    axis = int(node.attributes["axis"]) % len(shape)
    parts = [graph.tensors[name].shape for name in node.inputs]
    if len(parts) < 2 or any(set(part[axis:]) != {1} for part in parts) or math.prod(shape[:axis]) < _LEAST:
        return None
    behind, cut = sole_reader(graph, node.outputs[0]), None
    if behind is not None and _leaves(graph, behind, axis):
        cut, behind = behind, sole_reader(graph, behind.outputs[0])
    turned = behind if behind is not None and standard(behind, "Transpose") and "perm" in behind.attributes else None
    return _Stack(node, axis, cut, turned)


def _leaves(graph: Graph, node: Node, axis: int) -> bool:
    """Whether ``node`` is a Slice by constants that leaves ``axis`` and all later axes whole."""
    if not standard(node, "Slice") or Draft(graph).opset < _SLICE_FROM or not filled(graph, node):
        return False
    if any(name not in graph.constants for name in node.inputs[1:] if name):
        return False
    input_shape, output_shape = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    return input_shape[axis:] == output_shape[axis:] and all(_cuts(graph, node)[3] > 0)


def _cuts(graph: Graph, node: Node) -> np.ndarray:
    """Starts, ends, axes and steps of a Slice by constants, one column for each axis."""
    starts, ends, *others = (graph.constants.get(name) for name in node.inputs[1:])
    assert starts is not None
    assert ends is not None
    axes, steps = [*others, None, None][:2]
    axes = np.arange(len(starts)) if axes is None else axes % len(graph.tensors[node.inputs[0]].shape)
    return np.stack([starts, ends, axes, np.ones_like(starts) if steps is None else steps]).astype(np.int64)


def _in_order(order: list[int], shape: tuple[int, ...]) -> bool:
    """Whether a transposition of ``shape`` moves nothing: axes of one element may go anywhere."""
    moved = [axis for axis in order if shape[axis] > 1]
    return moved == sorted(moved)
