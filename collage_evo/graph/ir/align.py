"""Alignment of two graphs: which operators of one correspond to which of the other, weights aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

import onnx

from collage_evo.graph.ir.graph import Graph, Node


def same_nodes(graph: Graph, other: Graph) -> Mapping[int, int]:
    """Map nodes of ``graph`` to the nodes of ``other`` that do the same there.

    Two graphs of one structure, whatever their weights, are paired node by node. Otherwise the longest common runs
    of operators with the same attributes and shapes of weights are paired, and then nodes in equal number between
    two such runs, as far as the operators' kinds agree: a head of another width, for example.
    """
    ours, theirs = ([_signature(one, node) for node in one.nodes] for one in (graph, other))
    if ours == theirs and graph.pred == other.pred:
        return {node: node for node in range(len(ours))}
    return dict(_pairs(ours, theirs, [n.op_type for n in graph.nodes], [n.op_type for n in other.nodes]))


def likeness(model: onnx.ModelProto, other: onnx.ModelProto) -> float:
    """Share of the operators of the longer of two models that both have in the same order, not inside of bodies."""
    ours, theirs = ([(node.domain, node.op_type) for node in one.graph.node] for one in (model, other))
    blocks = SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, len(ours), len(theirs))


def _signature(graph: Graph, node: Node) -> str:
    """What a node computes, without its weights' values and its inputs' sizes."""
    weights = [list(graph.constants[name].shape) if name in graph.constants else "" for name in node.inputs]
    attributes = sorted(
        attribute.SerializeToString(deterministic=True).hex()
        for proto in node.protos
        for attribute in proto.attribute
    )
    kinds = [proto.op_type for proto in node.protos]
    return f"{node.domain}:{node.op_type}{kinds}{weights}{len(node.outputs)}{attributes}"


def _pairs(
    ours: Sequence[str], theirs: Sequence[str], our_kinds: Sequence[str], their_kinds: Sequence[str]
) -> Iterator[tuple[int, int]]:
    for what, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if what == "equal":
            yield from zip(range(a, b), range(c, d), strict=True)
        elif what == "replace" and b - a == d - c:
            alike = (pair for pair in zip(range(a, b), range(c, d), strict=True))
            yield from ((i, j) for i, j in alike if our_kinds[i] == their_kinds[j])
