"""Grouping of a region's operators into steps that cuDNN runs as one graph each.

cuDNN adds in this order behind a convolution or a product: another tensor, the bias, an activation. Sums may be
taken in any order, which changes no more than rounding.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from collage_evo.backends.checks import present
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo_cuda.cudnn.rules import BEHIND_CONVOLUTION, BINARY, HEAVY, UNARY, bounds, collapse

_MOST = 16
"""Elementwise operators in one step."""


@dataclass(frozen=True)
class Draft:
    """The operators of one step: a heavy one with its epilogue, or elementwise ones.

    Attributes:
        nodes: in order.
        addend: a tensor of the shape of the heavy one's result, added to it.
        bias: a constant added to each of its channels or columns.
        activation: computed last.
    """

    nodes: tuple[Node, ...]
    addend: str = ""
    bias: str = ""
    activation: Node | None = None

    @property
    def first(self) -> Node:
        return self.nodes[0]

    @property
    def result(self) -> str:
        """The tensor that it makes."""
        return self.nodes[-1].outputs[0]

    @property
    def heavy(self) -> bool:
        return self.first.op_type in HEAVY

    @property
    def convolution(self) -> bool:
        """Whether it is one of ONNX's convolutions."""
        return self.first.op_type in ("Conv", "ConvTranspose")


def drafts_of(graph: Graph, nodes: NodeSet, leaving: Collection[str]) -> list[Draft]:
    """The steps of a region. ``leaving`` are the tensors that other regions read too."""
    drafts: list[Draft] = []
    for index in members(nodes):
        node = graph.nodes[index]
        joined = _joined(graph, drafts[-1], node, leaving) if drafts else None
        if joined is not None:
            drafts[-1] = joined
        elif node.op_type in ("Conv", "Gemm") and present(node, 2):
            drafts.append(Draft((node,), bias=node.inputs[2]))
        else:
            drafts.append(Draft((node,)))
    return drafts


def _joined(graph: Graph, draft: Draft, node: Node, leaving: Collection[str]) -> Draft | None:
    """The step with one more node, if it may join: the step is the last one, so all other inputs exist already."""
    result = draft.result
    only_reader = graph.consumers.get(result, ()) == (node.index,) and result not in leaving
    elementwise = node.op_type in UNARY or node.op_type in BINARY
    same = graph.tensors[node.outputs[0]].shape == graph.tensors[result].shape
    if not (only_reader and elementwise and same) or draft.first.op_type == "ConvTranspose":
        return None
    grown = replace(draft, nodes=(*draft.nodes, node))
    if not draft.heavy:
        fits = len(grown.nodes) <= _MOST and spread(graph, grown) is not None
        return grown if fits else None
    if draft.activation is not None:
        return None
    if node.op_type in ("Add", "Sum"):
        return _added(graph, draft, grown, node)
    return replace(grown, activation=node) if _activates(graph, draft, node) else None


def _added(graph: Graph, draft: Draft, grown: Draft, node: Node) -> Draft | None:
    others = [name for name in node.inputs if name != draft.result]
    if len(others) != 1:
        return None
    shape = graph.tensors[draft.result].shape
    if not draft.addend and graph.tensors[others[0]].shape == shape:
        return replace(grown, addend=others[0])
    axis = 1 if draft.convolution else len(shape) - 1
    value = graph.constants.get(others[0])
    fits = value is not None and _for_axis(value, len(shape), axis) in (1, shape[axis])
    return replace(grown, bias=others[0]) if fits and not draft.bias else None


def _for_axis(value: np.ndarray, rank: int, axis: int) -> int:
    """Elements of ``value``, broadcast to ``rank`` axes, along ``axis``; 0 if it has elements along others too."""
    padded = (1,) * (rank - value.ndim) + value.shape
    return padded[axis] if len(padded) == rank and value.size == padded[axis] else 0


def _activates(graph: Graph, draft: Draft, node: Node) -> bool:
    if not draft.convolution:
        return node.op_type in UNARY
    if node.op_type == "Clip" and bounds(graph, node)[0] != 0:
        return False
    return node.op_type in BEHIND_CONVOLUTION


def spread(graph: Graph, draft: Draft) -> tuple[tuple[int, ...], list[tuple[int, ...]]] | None:
    """An elementwise step's result and its operands on three axes, with all axes in order."""
    shapes = [graph.tensors[name].shape for name in operands(draft)]
    return collapse(graph.tensors[draft.result].shape, shapes)


def operands(draft: Draft) -> tuple[str, ...]:
    """The tensors that an elementwise step reads, each once; the bounds of a Clip are no tensors here."""
    outputs = {node.outputs[0] for node in draft.nodes}
    reads = (name for node in draft.nodes for name in read_by(node))
    return tuple(dict.fromkeys(name for name in reads if name not in outputs))


def read_by(node: Node) -> tuple[str, ...]:
    """The tensors that an elementwise operator computes on."""
    return node.inputs[: 2 if node.op_type in BINARY else 1]
