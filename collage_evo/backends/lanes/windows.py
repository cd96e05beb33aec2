"""Convolutions and pools on a part of their output: takes a span of it, gives what they need and their padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.backends.lanes.spans import Need, Span, Work
from collage_evo.errors import InputError
from collage_evo.graph.ir import Graph, Node


@dataclass(frozen=True)
class _Window:
    """How a convolution or a pool moves along one axis: its reach is (kernel - 1) * dilation + 1 elements."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        return (self.kernel - 1) * self.dilation + 1


def _windows(graph: Graph, node: Node) -> list[_Window]:
    """One for each spatial axis, with the padding that ``auto_pad`` stands for."""
    sizes, made = (graph.tensors[name].shape[2:] for name in (node.inputs[0], node.outputs[0]))
    rank, given = len(sizes), node.attributes
    kernels = given.get("kernel_shape") or graph.tensors[node.inputs[1]].shape[2:]
    strides, dilations = (given.get(key, [1] * rank) for key in ("strides", "dilations"))
    pads = list(given.get("pads", [0] * 2 * rank))
    mode = given.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = [0] * 2 * rank
    elif mode != "NOTSET":
        for axis in range(rank):
            reach = (kernels[axis] - 1) * dilations[axis] + 1
            padding = max(0, (made[axis] - 1) * strides[axis] + reach - sizes[axis])
            less, more = padding // 2, padding - padding // 2
            pads[axis], pads[rank + axis] = (more, less) if mode == "SAME_LOWER" else (less, more)
    columns = zip(kernels, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return [_Window(*column) for column in columns]


def _padding(windows: Sequence[_Window], axis: int, before: int, after: int) -> list[int]:
    """The attribute ``pads``, with other values along ``axis``."""
    first, last = [w.before for w in windows], [w.after for w in windows]
    first[axis], last[axis] = before, after
    return [*first, *last]


def convolution(graph: Graph, node: Node, span: Span) -> Work:
    """By samples, output channels (whole groups), or along a spatial axis."""
    if span.axis == 0:
        return Work((span, *(None for _ in node.inputs[1:])))
    if span.axis == 1:
        return _by_channels(graph, node, span)
    need, pads = _slid(graph, node, span)
    return Work((need, *(None for _ in node.inputs[1:])), {"pads": pads, "auto_pad": "NOTSET"})


def _by_channels(graph: Graph, node: Node, span: Span) -> Work:
    groups = node.attributes.get("group", 1)
    weights = Span(0, span.start, span.stop)
    parameters = tuple(weights for _ in node.inputs[1:])
    if groups == 1:
        return Work((None, *parameters))
    weight = graph.tensors[node.inputs[1]].shape
    made, read = weight[0] // groups, weight[1]
    if span.start % made or span.stop % made:
        raise InputError(f"a portion of {node.name} ends inside a group of its channels")
    first, last = span.start // made, span.stop // made
    return Work((Span(1, first * read, last * read), *parameters), {"group": last - first})


def pool(graph: Graph, node: Node, span: Span) -> Work:
    """By samples, channels, or along a spatial axis; a pool that tells positions is not cut."""
    if any(node.outputs[1:]):
        raise InputError(f"{node.name} gives positions, which are counted from the beginning")
    if span.axis < 2:
        return Work((span,))
    window = _windows(graph, node)[span.axis - 2]
    need, pads = _slid(graph, node, span)
    rank = len(pads) // 2
    before, after = pads[span.axis - 2], pads[rank + span.axis - 2]
    if after > window.after and node.attributes.get("count_include_pad", 0):
        raise InputError(f"{node.name} counts its padding, and not what its last window has beyond it")
    if max(before, after) >= window.kernel:
        raise InputError(f"{node.name} has windows outside its input")
    return Work((need,), {"pads": pads, "auto_pad": "NOTSET"})


def _slid(graph: Graph, node: Node, span: Span) -> tuple[Need, list[int]]:
    """What windows need for ``span`` along a spatial axis: elements that are there, and padding for all else."""
    axis = span.axis - 2
    windows = _windows(graph, node)
    window, size = windows[axis], graph.tensors[node.inputs[0]].shape[span.axis]
    first = span.start * window.stride - window.before
    stop = (span.stop - 1) * window.stride - window.before + window.reach
    need = Span(span.axis, max(0, first), min(size, stop))
    if need.size <= 0:
        raise InputError(f"a portion of {node.name} lies in its padding")
    return need, _padding(windows, axis, max(0, -first), max(0, stop - size))


def transposed_convolution(graph: Graph, node: Node, span: Span) -> Work:
    """By samples, or along a spatial axis; by output channels where there is one group."""
    parameters = node.inputs[1:]
    if span.axis == 0:
        return Work((span, *(None for _ in parameters)))
    if span.axis == 1:
        if node.attributes.get("group", 1) != 1:
            raise InputError(f"{node.name} has groups of channels")
        return Work((None, span, *(span.moved(0) for _ in parameters[1:])))
    if node.attributes.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in node.attributes:
        raise InputError(f"{node.name} leaves its padding to be found")
    axis = span.axis - 2
    windows = _windows(graph, node)
    window, size = windows[axis], graph.tensors[node.inputs[0]].shape[span.axis]
    # An input element i reaches outputs i * stride - before up to that plus reach - 1.
    lowest = -(-(span.start + window.before - window.reach + 1) // window.stride)
    first = max(0, min(lowest, (span.start + window.before) // window.stride))
    stop = min(size, (span.stop - 1 + window.before) // window.stride + 1)
    if stop <= first:
        raise InputError(f"a portion of {node.name} has no input")
    before = span.start + window.before - first * window.stride
    after = (stop - first - 1) * window.stride + window.reach - before - span.size
    further = list(node.attributes.get("output_padding", [0] * len(windows)))
    further[axis] = max(0, -after)
    if further[axis] >= window.stride and further[axis] > 0:
        raise InputError(f"a portion of {node.name} ends beyond its input")
    pads = _padding(windows, axis, before, max(0, after))
    need = Span(span.axis, first, stop)
    return Work((need, *(None for _ in parameters)), {"pads": pads, "output_padding": further})
