"""Rewrite ``pooled-convolutions``: an average pool and a 1x1 convolution exchanged, if that is less work."""

from __future__ import annotations

import math
from collections.abc import Iterator

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import Convolution, convolution, filled, sole_reader, standard
from collage_evo.rewrites.rewrite import Draft, Replacement


class PooledConvolutions:
    """Both are linear, one over channels and one over pixels, so that their order is free.

    DenseNet's transitions compute their products at all pixels and then keep a quarter; an Inception module's pool
    runs on all channels that its convolution then reduces. A bias passes only where weights of the pool add up to
    one at the edges too.
    """

    name = "pooled-convolutions"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for first in graph.nodes:
            second = sole_reader(graph, first.outputs[0])
            if second is not None and second.inputs[0] == first.outputs[0] and _exchanges(graph, first, second):
                yield 1 << first.index | 1 << second.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        first, second = (graph.nodes[index] for index in members(nodes))
        draft = Draft(graph)
        (middle,) = draft.copy(second.protos[0], [first.inputs[0], *second.inputs[1:]], [""])
        draft.copy(first.protos[0], [middle, *first.inputs[1:]], second.outputs)
        return draft.finished()


def _exchanges(graph: Graph, first: Node, second: Node) -> bool:
    """Whether one is a 1x1 convolution, one an average pool, and the other order is less work."""
    product = convolution(graph, first) or convolution(graph, second)
    pool = second if product is not None and product.node is first else first
    if product is None or not standard(pool, "AveragePool") or not product.pointwise or not filled(graph, pool):
        return False
    attributes = pool.attributes
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or attributes.get("ceil_mode", 0):
        return False
    if attributes.get("count_include_pad", 0) and product.bias is not None and not _inside(graph, pool):
        return False
    return _less_work(graph, product, pool, product.node is first)


def _inside(graph: Graph, pool: Node) -> bool:
    """Whether windows are within the image: ONNX Runtime accepts one that exceeds an image without pads."""
    sizes, kernel = graph.tensors[pool.inputs[0]].shape[2:], pool.attributes["kernel_shape"]
    spread = pool.attributes.get("dilations", [1] * len(kernel))
    reach = ((k - 1) * step + 1 for k, step in zip(kernel, spread, strict=True))
    return not any(pool.attributes.get("pads", ())) and all(r <= s for r, s in zip(reach, sizes, strict=True))


def _less_work(graph: Graph, product: Convolution, pool: Node, product_first: bool) -> bool:
    """Whether multiply-adds of the product and additions of the pool are fewer in the other order."""
    channels_out, channels_in = product.weights.shape[:2]
    window: int = math.prod(pool.attributes["kernel_shape"])
    large = math.prod(graph.tensors[pool.inputs[0]].shape[2:])
    small = math.prod(graph.tensors[pool.outputs[0]].shape[2:])
    early = channels_out * channels_in * large + window * channels_out * small
    late = channels_out * channels_in * small + window * channels_in * small
    return bool(late < early if product_first else early < late)
