"""Windows of convolutions and pools: padding of the input, and which of a kernel lies on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node


def spatial_pads(graph: Graph, node: Node, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Elements before and after each spatial axis of a convolution or pool, by ``pads`` or by ``auto_pad``."""
    count, ones = len(kernel), [1] * len(kernel)
    how = node.attributes.get("auto_pad", "NOTSET")
    if not how.startswith("SAME"):
        pads = list(node.attributes.get("pads", [0] * 2 * count)) if how != "VALID" else [0] * 2 * count
        return pads[:count], pads[count:]
    strides, dilations = (node.attributes.get(key, ones) for key in ("strides", "dilations"))
    sizes, before, after = graph.tensors[node.inputs[0]].shape[2:], [], []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        less, more = total // 2, total - total // 2
        before.append(more if how == "SAME_LOWER" else less)
        after.append(less if how == "SAME_LOWER" else more)
    return before, after


def kernel_inside(graph: Graph, node: Node) -> np.ndarray:
    """float64 in the shape of a convolution's kernel: the share of the windows in which each kernel element lies on
    the input, not on its padding. 1.0 for an operator without windows."""
    kernel = graph.constants[node.inputs[1]].shape[2:] if node.op_type == "Conv" else ()
    sizes, windows = (graph.tensors[name].shape[2:] for name in (node.inputs[0], node.outputs[0]))
    strides, dilations = (node.attributes.get(key, [1] * len(kernel)) for key in ("strides", "dilations"))
    inside, (before, _) = np.ones(()), spatial_pads(graph, node, kernel)
    for axis, extent in enumerate(kernel):
        begins = np.arange(windows[axis])[:, np.newaxis] * strides[axis] - before[axis]
        places = begins + np.arange(extent) * dilations[axis]
        inside = np.multiply.outer(inside, ((places >= 0) & (places < sizes[axis])).mean(0))
    return inside
