"""Backtracking matcher of drawn patterns: every set of nodes on which a pattern's ends fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from types import EllipsisType
from typing import Any

import onnx

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.patterns.expression import Anything, Either, Operator, Result, Value

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})
"""Operators whose inputs may be listed in any order."""

Bound = Mapping[Value | Operator, Any]
"""What each value (a tensor's name) and each operator (a node's index) of the pattern stands for."""


MAX_TRIES = 200_000
"""Nodes that one search may try: some twenty times what a model of a thousand operators takes."""


class TooManyWays(Exception):
    """The search exceeded its bound: a pattern with many alternatives met a dense graph."""


class Matcher:
    """Backtracks over one graph, through ``supported`` nodes only."""

    def __init__(self, graph: Graph, supported: NodeSet, max_tries: int = MAX_TRIES) -> None:
        self._graph, self._supported = graph, supported
        self._max_tries, self._tries = max_tries, 0

    def find(self, ends: Sequence[Value]) -> Iterator[NodeSet]:
        """Every set of nodes, each once, that fits and whose inner values no other node reads.

        Raises:
            TooManyWays: after ``max_tries`` nodes; earlier sets have been yielded.
        """
        for index in members(self._supported):
            seen: set[NodeSet] = set()
            for name in filter(None, self._graph.nodes[index].outputs):
                for bound in self._value(ends[0], name, {}):
                    for nodes in self._others(ends, 1, bound):
                        if nodes not in seen:
                            seen.add(nodes)
                            yield nodes

    def _others(self, ends: Sequence[Value], done: int, bound: Bound) -> Iterator[NodeSet]:
        """Match the ends after the first, downstream of bound values."""
        if done < len(ends):
            end = ends[done]
            for name in [bound[end]] if end in bound else self._downstream(bound, _depth(end)):
                for more in self._value(end, name, bound):
                    yield from self._others(ends, done + 1, more)
            return
        nodes = 0
        for key, index in bound.items():
            if isinstance(key, Operator):
                nodes |= 1 << index
        last = {self._graph.producer[bound[end]] for end in ends}
        leaking = any(self._graph.producer[name] not in last for name in self._graph.boundary(nodes)[1])
        if nodes and not leaking:
            yield nodes

    def _downstream(self, bound: Bound, steps: int) -> Iterator[str]:
        """Tensors that can be reached from bound ones through at most ``steps`` nodes."""
        names = [what for key, what in bound.items() if isinstance(key, Value)]
        seen: set[int] = set()
        for _ in range(steps):
            readers = {index for name in names for index in self._graph.consumers.get(name, ())}
            new = sorted(index for index in readers - seen if self._supported >> index & 1)
            seen.update(new)
            names = [name for index in new for name in self._graph.nodes[index].outputs if name]
            yield from names

    def _value(self, value: Value, name: str, bound: Bound) -> Iterator[Bound]:
        if value in bound:
            if bound[value] == name:
                yield bound
        elif isinstance(value, Either):
            for choice in value.choices:
                for more in self._value(choice, name, bound):
                    yield {**more, value: name}
        elif isinstance(value, Result):
            maker = self._graph.producer.get(name)
            if maker is None:
                return
            node = self._graph.nodes[maker]
            if value.position < len(node.outputs) and node.outputs[value.position] == name:
                for more in self._operator(value.operator, node, bound):
                    yield {**more, value: name}
        elif isinstance(value, Anything) and value.fits(self._graph, name):
            yield {**bound, value: name}

    def _operator(self, operator: Operator, node: Node, bound: Bound) -> Iterator[Bound]:
        self._tries += 1
        if self._tries > self._max_tries:
            raise TooManyWays(f"it was given up after {self._max_tries} tries")
        if operator in bound:
            if bound[operator] == node.index:
                yield bound
            return
        if not operator.takes(node) or not self._supported >> node.index & 1:
            return
        used = any(isinstance(key, Operator) and index == node.index for key, index in bound.items())
        if not used and self._fits(operator, node):
            yield from self._inputs(operator, node, {**bound, operator: node.index})

    def _fits(self, operator: Operator, node: Node) -> bool:
        """Whether the node has the attributes that the operator asks for, and meets its other condition."""
        for name, expected in operator.attributes.items():
            value = node.attributes.get(name, _default(node.op_type, self._graph.opset, name))
            if not (expected(value) if callable(expected) else value == expected):
                return False
        return operator.where is None or operator.where(self._graph, node)

    def _inputs(self, operator: Operator, node: Node, bound: Bound) -> Iterator[Bound]:
        """Every assignment of the node's tensors to the listed inputs."""
        listed = [value for value in operator.inputs if not isinstance(value, EllipsisType)]
        tensors = list(node.inputs)
        while tensors and not tensors[-1]:
            tensors.pop()
        if len(tensors) > len(listed) and ... not in operator.inputs:
            return
        tensors += [""] * (len(listed) - len(tensors))
        orders: Iterator[tuple[str, ...]] = iter([tuple(tensors[: len(listed)])])
        if node.op_type in COMMUTATIVE or operator.inputs[:1] == (...,):
            orders = permutations(tensors, len(listed))
        for order in dict.fromkeys(orders):
            yield from self._in_turn(tuple(zip(listed, order, strict=True)), bound)

    def _in_turn(self, pairs: Sequence[tuple[Value | None, str]], bound: Bound) -> Iterator[Bound]:
        if not pairs:
            yield bound
            return
        value, name = pairs[0]
        if value is None or not name:
            if value is None and not name:
                yield from self._in_turn(pairs[1:], bound)
            return
        for more in self._value(value, name, bound):
            yield from self._in_turn(pairs[1:], more)


@cache
def _default(op_type: str, opset: int, attribute: str) -> Any:
    """The attribute's default, or None."""
    try:
        proto = onnx.defs.get_schema(op_type, opset).attributes[attribute].default_value
    except (onnx.defs.SchemaError, KeyError):
        return None
    value = onnx.helper.get_attribute_value(proto) if proto.type else None
    return value.decode() if isinstance(value, bytes) else value


def _depth(value: Value) -> int:
    """Operators on the longest way through the pattern to ``value``."""
    if isinstance(value, Either):
        return max(_depth(choice) for choice in value.choices)
    if isinstance(value, Result):
        return 1 + max((_depth(inner) for inner in value.operator.inputs if isinstance(inner, Value)), default=0)
    return 0
