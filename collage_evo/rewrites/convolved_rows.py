"""Rewrite ``convolved-rows``: a product of many rows by constant weights as a 1x1 convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.operators import ELEMENTWISE
from collage_evo.rewrites.common import filled, reshape, sole_reader, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

_FEWEST_ROWS = 17
"""Fewest rows of a product. Chosen: with fewer, ``joined-products`` may join it with others."""
_ALONG_LAST_AXIS = ELEMENTWISE - {"BatchNormalization"}
"""Operators whose constants of one axis go with the last one, that of a row's numbers."""


class ConvolvedRows:
    """A product of many rows by constant weights, its bias and its activation, as a 1x1 convolution.

    OpenVINO computes a convolution's epilogue while its sums are in registers, also the rounding to int8. A row is a
    pixel, and its numbers are the channels: they have that order in memory already, so the Transposes move none.
    """

    name = "convolved-rows"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        products = [product for node in graph.nodes if (product := _product(graph, node)) is not None]
        for product in sorted(products, key=lambda product: -product.rows * product.weights.size):
            yield _with_activation(graph, product.node)

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        first, *others = (graph.nodes[index] for index in members(nodes))
        product, draft, output = _product(graph, first), Draft(graph), first.outputs[0]
        assert product is not None
        shape, bias = graph.tensors[output].shape, product.bias
        if bias is None and (bias := _bias(graph, output, nodes)) is not None:
            output, *others = others[0].outputs[0], *others[1:]
        image = len(shape) == 4
        line = (1, 1, product.rows, product.weights.shape[1])
        x = first.inputs[0] if image else reshape(draft, first.inputs[0], line)
        inputs = [draft.node("Transpose", [x], perm=[0, 3, 1, 2]), draft.constant(product.weights[:, :, None, None])]
        inputs += [] if bias is None else [draft.constant(bias)]
        tensors = {"": "", output: draft.node("Conv", inputs, kernel_shape=[1, 1])}
        same = {inputs[0]: first.inputs[0], tensors[output]: output}
        for node in others:
            read = [tensors[n] if n in tensors else draft.constant(_channels(graph, n)) for n in node.inputs]
            output = node.outputs[0]
            tensors[output] = draft.copy(node.protos[0], read, [""])[0]
        y = draft.node("Transpose", [tensors[output]], output if image else "", perm=[0, 2, 3, 1])
        if not image:
            reshape(draft, y, shape, output)
        return draft.finished(same)


@dataclass(frozen=True)
class _Product:
    """``rows`` times the transposed ``weights``, outputs x inputs; ``bias`` has one number for each output."""

    node: Node
    rows: int
    weights: np.ndarray
    bias: np.ndarray | None


def _product(graph: Graph, node: Node) -> _Product | None:
    """``node`` parsed; None if it is no product of many rows by constant weights."""
    gemm = standard(node, "Gemm")
    if not (gemm or standard(node, "MatMul")) or not filled(graph, node) or node.attributes.get("transA"):
        return None
    input_, weights = graph.tensors[node.inputs[0]], graph.constants.get(node.inputs[1])
    if node.inputs[0] in graph.constants or weights is None or weights.dtype != np.float32 or weights.ndim != 2:
        return None
    rows = math.prod(input_.shape[:-1])
    if len(input_.shape) < 2 or rows < _FEWEST_ROWS:
        return None
    if not gemm:
        return _Product(node, rows, weights.T, None)
    weights = weights if node.attributes.get("transB") else weights.T
    weights = weights * np.float32(node.attributes.get("alpha", 1.0))
    if not any(node.inputs[2:]):
        return _Product(node, rows, weights, None)
    if not _along_last_axis(graph, node.inputs[2], len(weights)):
        return None
    bias = graph.constants[node.inputs[2]].reshape(-1) * np.float32(node.attributes.get("beta", 1.0))
    return _Product(node, rows, weights, np.broadcast_to(bias, len(weights)))


def _bias(graph: Graph, product: str, nodes: NodeSet) -> np.ndarray | None:
    """The bias of an Add among ``nodes`` that is the only reader of ``product``; None if there is none."""
    reader = sole_reader(graph, product)
    if reader is None or not nodes >> reader.index & 1 or not standard(reader, "Add"):
        return None
    (name,) = {*reader.inputs} - {product}
    return np.broadcast_to(graph.constants[name].reshape(-1), graph.tensors[product].shape[-1])


def _with_activation(graph: Graph, product: Node) -> NodeSet:
    """``product`` with its bias, and with the elementwise operators behind it if a single tensor leaves them."""
    for most in (len(graph.nodes), 2):
        nodes = _grown(graph, product, most)
        if len(graph.boundary(nodes)[1]) == 1:
            return nodes
    return 1 << product.index


def _grown(graph: Graph, product: Node, most: int) -> NodeSet:
    """Up to ``most`` operators: ``product``, and elementwise ones behind it that otherwise read only constants."""
    nodes, shape, outputs = 1 << product.index, graph.tensors[product.outputs[0]].shape, {product.outputs[0]}
    waiting = list(graph.consumers.get(product.outputs[0], ()))
    while waiting and nodes.bit_count() < most:
        node = graph.nodes[waiting.pop(0)]
        if not nodes >> node.index & 1 and _follows(graph, node, outputs, shape):
            nodes |= 1 << node.index
            outputs.add(node.outputs[0])
            waiting += graph.consumers.get(node.outputs[0], ())
    return nodes


def _follows(graph: Graph, node: Node, inside: set[str], shape: tuple[int, ...]) -> bool:
    """Whether ``node`` is elementwise on ``inside``, preserves its ``shape``, and otherwise reads only constants."""
    if node.op_type not in _ALONG_LAST_AXIS or node.domain not in ("", "ai.onnx") or len(node.outputs) != 1:
        return False
    result = graph.tensors[node.outputs[0]]
    if result.dtype != "float32" or result.shape != shape:
        return False
    others = (name for name in node.inputs if name and name not in inside)
    return all(_along_last_axis(graph, name, shape[-1]) for name in others)


def _along_last_axis(graph: Graph, name: str, length: int) -> bool:
    """Whether ``name`` is a constant of one number, or of one for each index of the last axis."""
    array = graph.constants.get(name)
    if array is None or array.dtype != np.float32:
        return False
    return array.size == 1 or array.shape == (*[1] * (array.ndim - 1), length)


def _channels(graph: Graph, name: str) -> np.ndarray:
    """The constant ``name`` with its last axis as the second of four."""
    array = graph.constants[name]
    return array.reshape(()) if array.size == 1 else array.reshape(1, -1, 1, 1)
