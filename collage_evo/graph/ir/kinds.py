"""Kinds of nodes: nodes of one kind compute the same but for their weights, in surroundings of the same kinds.

Networks repeat blocks. What a search learns of a node in one copy of a block holds for the same node in the others.
"""

from __future__ import annotations

from collections.abc import Hashable

from collage_evo.graph.ir.graph import Graph, GraphCache, Node

REFINEMENTS = 2
"""Steps from a node to which its kind describes its surroundings. Chosen: at two, the parts of a layer of an encoder
are of different kinds, but for the equal products for queries, keys and values."""


@GraphCache
def kinds_of(graph: Graph, refinements: int = REFINEMENTS) -> tuple[int, ...]:
    """For each node the number of its kind, numbered by first node; computed once a graph.

    The colours of Weisfeiler and Leman (1968) after so many ``refinements``, from operators, attributes and shapes.
    """
    colours = _numbered([_own(graph, node) for node in graph.nodes])
    for _ in range(refinements):
        colours = _numbered([_around(graph, node, colours) for node in graph.nodes])
    return colours


def _numbered(labels: list[Hashable]) -> tuple[int, ...]:
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels)


def _own(graph: Graph, node: Node) -> Hashable:
    """The operator, its attributes and the types of its tensors; values of constants do not count."""
    attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    kinds = tuple(proto.op_type for proto in node.protos)
    types = tuple(_type(graph, name) for name in node.inputs + node.outputs)
    return (node.domain, node.op_type, kinds, attributes, types)


def _type(graph: Graph, name: str) -> Hashable:
    if name in graph.constants:
        return ("constant", *graph.constants[name].shape)
    tensor = graph.tensors.get(name)
    return None if tensor is None else (tensor.dtype, *tensor.shape)


def _around(graph: Graph, node: Node, colours: tuple[int, ...]) -> Hashable:
    before = tuple(colours[graph.producer[name]] if name in graph.producer else -1 for name in node.inputs)
    after = tuple(
        tuple(sorted(colours[user] for user in graph.consumers.get(name, ()))) for name in node.outputs
    )
    return (colours[node.index], before, after)
