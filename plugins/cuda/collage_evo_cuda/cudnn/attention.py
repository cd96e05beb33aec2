"""Scaled dot-product attention in a region: its queries, keys, values, mask and scale, and their layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo_cuda.cudnn.plan import contiguous
from collage_evo_cuda.cudnn.rules import HEAD_SIZES

_RANK = 4


@dataclass(frozen=True)
class Seen:
    """A tensor in memory, viewed as [batch, heads, length, head size]."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Attention:
    """Softmax(query x key^T x scale + mask) x value; ``mask`` may be absent."""

    query: Seen
    key: Seen
    value: Seen
    result: Seen
    mask: str
    scale: float


def find_attention(graph: Graph, nodes: NodeSet) -> Attention | str:
    """The attention that all of ``nodes`` form, or the reason why cuDNN does not take them as one."""
    chosen = {index: graph.nodes[index] for index in members(nodes)}
    walk = _Walk(graph, chosen)
    softmax = [node for node in chosen.values() if node.op_type == "Softmax"]
    if len(softmax) != 1:
        return "a Softmax or Transpose is taken as part of one attention only"
    rank = len(graph.tensors[softmax[0].outputs[0]].shape)
    if rank != _RANK or softmax[0].attributes.get("axis", -1) % rank != rank - 1:
        return "its Softmax is not over the last of four axes"
    attention = walk.around(softmax[0])
    if isinstance(attention, str):
        return attention
    if walk.used != chosen.keys():
        other = next(node for index, node in chosen.items() if index not in walk.used)
        return f"{other.op_type} is no part of the attention around it"
    seen = (attention.query, attention.key, attention.value, attention.result)
    if any(one.strides[-1] != 1 for one in seen):
        return "a head's elements do not lie side by side: take the Transpose of the keys with it"
    sizes = {one.shape[-1] for one in seen}
    if len(sizes) != 1 or min(sizes) not in HEAD_SIZES:
        return f"heads of size {', '.join(map(str, sorted(sizes)))} are not taken"
    return attention


class _Walk:
    """Walks around a Softmax, only inside the region, and records the visited nodes."""

    def __init__(self, graph: Graph, chosen: dict[int, Node]) -> None:
        self._graph, self._chosen = graph, chosen
        self.used: set[int] = set()

    def around(self, softmax: Node) -> Attention | str:
        self.used.add(softmax.index)
        scores, mask = softmax.inputs[0], ""
        if (node := self._maker(scores, "Add")) is not None:
            inner = [name for name in node.inputs if self._maker(name, "MatMul", "Div", "Mul") is not None]
            others = [name for name in node.inputs if name not in inner]
            if len(inner) != 1 or len(others) != 1:
                return "what is added to its scores is no mask"
            scores, mask = inner[0], others[0]
            self.used.add(node.index)
        scale = 1.0
        if (node := self._maker(scores, "Div", "Mul")) is not None:
            scaled = self._scale(node)
            if scaled is None:
                return "its scale is not one constant"
            scores, scale = scaled
            self.used.add(node.index)
        product, last = self._maker(scores, "MatMul"), self._reader(softmax.outputs[0], "MatMul")
        if product is None or last is None or last.inputs[0] != softmax.outputs[0]:
            return "there is no product on both sides of its Softmax"
        self.used |= {product.index, last.index}
        key = self._seen(product.inputs[1])
        turned = Seen(key.name, _swapped(key.shape), _swapped(key.strides))
        query, value = self._seen(product.inputs[0]), self._seen(last.inputs[1])
        attention = Attention(query, turned, value, self._result(last.outputs[0]), mask, scale)
        return self._fits(attention) or attention

    def _fits(self, attention: Attention) -> str:
        if any(one.name in self._graph.constants for one in (attention.query, attention.key, attention.value)):
            return "constant queries, keys or values are not taken"
        if len({one.shape[:2] for one in (attention.query, attention.key, attention.value)}) != 1:
            return "batch and heads differ"
        if attention.mask:
            full = (*attention.query.shape[:3], attention.key.shape[2])
            shape = self._graph.tensors[attention.mask].shape
            padded = (1,) * (_RANK - len(shape)) + shape
            if any(size not in (1, whole) for size, whole in zip(padded, full, strict=True)):
                return "its mask does not fit its scores"
        return ""

    def _maker(self, name: str, *types: str) -> Node | None:
        """The node in the region that makes ``name`` for a single reader, if it is of one of the types."""
        node = self._chosen.get(self._graph.producer.get(name, -1))
        return node if node is not None and node.op_type in types and self._private(name) else None

    def _reader(self, name: str, *types: str) -> Node | None:
        readers = [self._chosen.get(index) for index in self._graph.consumers.get(name, ())]
        node = readers[0] if len(readers) == 1 and self._private(name) else None
        return node if node is not None and node.op_type in types else None

    def _private(self, name: str) -> bool:
        return len(self._graph.consumers.get(name, ())) == 1 and name not in self._graph.outputs

    def _scale(self, node: Node) -> tuple[str, float] | None:
        """The scaled tensor, and the scale."""
        for name, other in (node.inputs, node.inputs[::-1]):
            value = self._graph.constants.get(other)
            if value is not None and value.size == 1 and name not in self._graph.constants:
                if node.op_type == "Mul":
                    return name, float(value.item())
                return (name, 1.0 / float(value.item())) if other == node.inputs[1] and value.item() else None
        return None

    def _seen(self, name: str) -> Seen:
        """The tensor, or the input of its Transpose in the region."""
        node = self._maker(name, "Transpose")
        shape = self._graph.tensors[name].shape
        if node is None:
            return Seen(name, shape, contiguous(shape))
        self.used.add(node.index)
        source = node.inputs[0]
        strides = contiguous(self._graph.tensors[source].shape)
        return Seen(source, shape, tuple(strides[axis] for axis in _order(node)))

    def _result(self, name: str) -> Seen:
        """The tensor, or the output of its Transpose in the region."""
        shape = self._graph.tensors[name].shape
        node = self._reader(name, "Transpose")
        if node is None:
            return Seen(name, shape, contiguous(shape))
        self.used.add(node.index)
        target = node.outputs[0]
        strides = contiguous(self._graph.tensors[target].shape)
        order = _order(node)
        return Seen(target, shape, tuple(strides[order.index(axis)] for axis in range(len(shape))))


def _order(node: Node) -> list[int]:
    """The input axis of each axis of a Transpose's output; reversed by default."""
    return list(node.attributes.get("perm", range(_RANK)[::-1]))


def _swapped(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes[:-2], sizes[-1], sizes[-2])
