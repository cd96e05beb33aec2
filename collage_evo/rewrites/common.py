"""Shared parsing of operators for rewrites, and writers of common operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.rewrite import Draft, Replacement

VECTOR = 16
"""Numbers of 32 bits in the widest vector of a processor, AVX-512's: as many channels are computed together."""
_SLICE_FROM, _SPLIT_FROM = 10, 13
"""Versions from which Slice and Split have inputs where they had attributes."""


@dataclass(frozen=True)
class Convolution:
    """A convolution, transposed or not, on float32 by constant weights: one entry for each spatial axis."""

    node: Node
    x: str
    weights: np.ndarray
    bias: np.ndarray | None
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    group: int

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.weights.shape[2:]

    @property
    def pads(self) -> list[int]:
        """The pads in ONNX's order."""
        return [*self.before, *self.after]

    @property
    def pointwise(self) -> bool:
        """Whether it is a product at each pixel by itself, in one group."""
        whole = set(self.strides) == set(self.dilations) == {1} and not any(self.pads)
        return whole and self.group == 1 and set(self.kernel) == {1}


def standard(node: Node, op_type: str) -> bool:
    """Whether ``node`` is ONNX's own operator of that name."""
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def filled(graph: Graph, node: Node) -> bool:
    """Whether the first input and output of ``node`` have elements: replacements of empty ones may not run."""
    return all(0 not in graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))


def convolution(graph: Graph, node: Node, op_type: str = "Conv") -> Convolution | None:
    """``node`` parsed; None if it is no such operator, makes nothing, or computes its weights or pads itself."""
    if not standard(node, op_type) or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if not filled(graph, node):
        return None
    if node.inputs[0] in graph.constants or "output_shape" in node.attributes:
        return None
    weights = graph.constants.get(node.inputs[1])
    bias = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if weights is None or weights.dtype != np.float32 or (bias is None and any(node.inputs[2:])):
        return None
    axes = weights.ndim - 2
    pads = tuple(node.attributes.get("pads", (0,) * (2 * axes)))
    if min(pads, default=0) < 0 or axes < 1:
        return None
    return Convolution(
        node,
        node.inputs[0],
        weights,
        bias,
        tuple(node.attributes.get("strides", (1,) * axes)),
        tuple(node.attributes.get("dilations", (1,) * axes)),
        pads[:axes],
        pads[axes:],
        int(node.attributes.get("group", 1)),
    )


class ConvolutionRewrite(ABC):
    """A rewrite whose sites are single convolutions."""

    op_type: ClassVar[str] = "Conv"

    @abstractmethod
    def fits(self, graph: Graph, conv: Convolution) -> bool:
        """Whether the convolution is a site."""

    @abstractmethod
    def write(self, draft: Draft, graph: Graph, conv: Convolution) -> None:
        """Write the replacement of the convolution."""

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            conv = convolution(graph, node, self.op_type)
            if conv is not None and self.fits(graph, conv):
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        draft, conv = Draft(graph), convolution(graph, graph.nodes[next(members(nodes))], self.op_type)
        assert conv is not None
        self.write(draft, graph, conv)
        return draft.finished()


def sole_reader(graph: Graph, tensor: str) -> Node | None:
    """The only operator that reads ``tensor``, once; None if others do, or if it leaves the graph."""
    readers = graph.consumers.get(tensor, ())
    if len(readers) != 1 or tensor in graph.outputs or graph.nodes[readers[0]].inputs.count(tensor) != 1:
        return None
    return graph.nodes[readers[0]]


def convolve(draft: Draft, x: str, weights: np.ndarray, bias: np.ndarray | None, output: str = "", **how: Any) -> str:
    """Write a convolution with the attributes ``how``."""
    inputs = [x, draft.constant(weights)] + ([] if bias is None else [draft.constant(bias)])
    return draft.node("Conv", inputs, output, kernel_shape=list(weights.shape[2:]), **how)


def reshape(draft: Draft, x: str, shape: Sequence[int], output: str = "") -> str:
    return draft.node("Reshape", [x, draft.constant(np.array(shape, np.int64))], output)


def cut(
    draft: Draft, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], output: str = ""
) -> str:
    """A Slice with steps of one."""
    if draft.opset < _SLICE_FROM:
        return draft.node("Slice", [x], output, starts=list(starts), ends=list(ends), axes=list(axes))
    parts = [draft.constant(np.array(values, np.int64)) for values in (starts, ends, axes)]
    return draft.node("Slice", [x, *parts], output)


def split(draft: Draft, x: str, sizes: Sequence[int], axis: int, outputs: Sequence[str] = ()) -> tuple[str, ...]:
    """A Split into parts of ``sizes``, named ``outputs`` if there are any; no operator for a single part."""
    if len(sizes) == 1 and not outputs:
        return (x,)
    names = outputs or [""] * len(sizes)
    if draft.opset < _SPLIT_FROM:
        return draft.several("Split", [x], names, axis=axis, split=list(sizes))
    return draft.several("Split", [x, draft.constant(np.array(sizes, np.int64))], names, axis=axis)
