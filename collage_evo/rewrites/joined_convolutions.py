"""Rewrite ``joined-convolutions``: 1x1 convolutions of one input as a single convolution with a split output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members, node_set
from collage_evo.rewrites.common import convolution, convolve, sole_reader, split, standard
from collage_evo.rewrites.rewrite import Draft, Replacement


class JoinedConvolutions:
    """Neighbouring 1x1 convolutions with the same strides that read the same tensor, as in an Inception module.

    Where all of them feed only the same activation, the joined part includes it too.
    """

    name = "joined-convolutions"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        alike: dict[tuple[str, tuple[int, ...], bool], list[Node]] = {}
        for node in graph.nodes:
            conv = convolution(graph, node)
            if conv is not None and conv.kernel == (1, 1) and conv.group == 1 and not any(conv.pads):
                alike.setdefault((conv.x, conv.strides, conv.bias is not None), []).append(node)
        for nodes in alike.values():
            if len(nodes) > 1:
                # Convex: none reads another's output, and neither does a bound that all activations share.
                yield node_set(node.index for node in nodes) | _activations(graph, nodes)

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        chosen = [graph.nodes[index] for index in members(nodes)]
        convolutions = [conv for node in chosen if (conv := convolution(graph, node)) is not None]
        draft = Draft(graph)
        weights = np.concatenate([conv.weights for conv in convolutions])
        biases = [conv.bias for conv in convolutions if conv.bias is not None]
        bias = np.concatenate(biases) if biases else None
        joined = convolve(draft, convolutions[0].x, weights, bias, strides=list(convolutions[0].strides))
        ends = [conv.node.outputs[0] for conv in convolutions]
        if len(chosen) > len(convolutions):
            behind = [next(node for node in chosen if node.inputs[0] == end) for end in ends]
            joined = draft.copy(behind[0].protos[0], [joined, *behind[0].inputs[1:]], [""])[0]
            ends = [node.outputs[0] for node in behind]
        sizes = [graph.tensors[end].shape[1] for end in ends]
        split(draft, joined, sizes, 1, ends)
        return draft.finished()


def _activations(graph: Graph, convolutions: Sequence[Node]) -> NodeSet:
    """The equal activations that are the only readers of ``convolutions``; empty if they differ."""
    activations = []
    for node in convolutions:
        reader = sole_reader(graph, node.outputs[0])
        if reader is None or reader.inputs[0] != node.outputs[0] or not standard(reader, reader.op_type):
            return 0
        activations.append(reader)
    same = {(node.op_type, _bounds(graph, node), str(sorted(node.attributes.items()))) for node in activations}
    return node_set(node.index for node in activations) if len(same) == 1 and activations[0].op_type in _UNARY else 0


def _bounds(graph: Graph, node: Node) -> tuple[object, ...]:
    """Inputs of ``node`` besides its data, such as the bounds of Clip: constants by their values."""
    others = [(name, graph.constants.get(name)) for name in node.inputs[1:]]
    return tuple(name if array is None else (array.shape, array.tobytes()) for name, array in others)


_UNARY = frozenset({"Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "HardSigmoid", "Tanh", "Elu"})
"""Activations that can run before the split: each element depends on a single element."""

