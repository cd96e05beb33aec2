"""A rewrite: 1x1 convolutions of one input as a single convolution, whose output is split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collage_evo.graph.ir import Graph, Node, NodeSet, members, node_set
from collage_evo.rewrites.rewrite import Draft, Replacement

_SPLIT_SIZES_AS_INPUT = 13
"""The version of ONNX's operators from which Split has its sizes as an input."""


class JoinedConvolutions:
    """Neighbouring 1x1 convolutions with the same strides that read the same tensor, as in an Inception module.

    Where all of them feed the same activation and nothing else, this goes into the joined part too.
    """

    name = "joined-convolutions"
    exact = True

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        alike: dict[tuple[str, tuple[int, ...], bool], list[Node]] = {}
        for node in graph.nodes:
            if _is_pointwise(graph, node):
                key = (node.inputs[0], tuple(node.attributes.get("strides", (1, 1))), len(node.inputs) > 2)
                alike.setdefault(key, []).append(node)
        for nodes in alike.values():
            site = node_set(node.index for node in nodes)
            if len(nodes) > 1 and graph.is_convex(site):
                whole = site | _activations(graph, nodes)
                yield whole if graph.is_convex(whole) else site

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        chosen = [graph.nodes[index] for index in members(nodes)]
        convolutions = [node for node in chosen if node.op_type == "Conv"]
        draft = Draft(graph)
        inputs = [convolutions[0].inputs[0]]
        for position in range(1, len(convolutions[0].inputs)):
            inputs.append(draft.constant(np.concatenate([graph.constants[n.inputs[position]] for n in convolutions])))
        joined = draft.copy(convolutions[0].protos[0], inputs, [""])[0]
        ends = [node.outputs[0] for node in convolutions]
        if len(chosen) > len(convolutions):
            behind = [next(node for node in chosen if node.inputs[0] == end) for end in ends]
            joined = draft.copy(behind[0].protos[0], [joined, *behind[0].inputs[1:]], [""])[0]
            ends = [node.outputs[0] for node in behind]
        sizes = [graph.tensors[end].shape[1] for end in ends]
        if draft.opset >= _SPLIT_SIZES_AS_INPUT:
            draft.several("Split", [joined, draft.constant(np.array(sizes, np.int64))], ends, axis=1)
        else:
            draft.several("Split", [joined], ends, axis=1, split=sizes)
        return draft.finished()


def _is_pointwise(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a convolution of images with one group and a constant 1x1 kernel, without padding."""
    if node.op_type != "Conv" or node.domain not in ("", "ai.onnx") or "auto_pad" in node.attributes:
        return False
    weights = [graph.constants.get(name) for name in node.inputs[1:]]
    if any(array is None or array.dtype != np.float32 for array in weights) or node.inputs[0] in graph.constants:
        return False
    plain = node.attributes.get("group", 1) == 1 and not any(node.attributes.get("pads", ()))
    return plain and graph.constants[node.inputs[1]].shape[2:] == (1, 1)


def _activations(graph: Graph, convolutions: Sequence[Node]) -> NodeSet:
    """What computes the same activation of each of ``convolutions``, if that is all that reads them; else nothing."""
    found = []
    for node in convolutions:
        readers = graph.consumers.get(node.outputs[0], ())
        if len(readers) != 1 or node.outputs[0] in graph.outputs:
            return 0
        found.append(graph.nodes[readers[0]])
    same = {(node.op_type, _bounds(graph, node), str(sorted(node.attributes.items()))) for node in found}
    return node_set(node.index for node in found) if len(same) == 1 and found[0].op_type in _UNARY else 0


def _bounds(graph: Graph, node: Node) -> tuple[object, ...]:
    """What ``node`` reads besides its data, such as the bounds of Clip: constants by their values."""
    others = [(name, graph.constants.get(name)) for name in node.inputs[1:]]
    return tuple(name if array is None else (array.shape, array.tobytes()) for name, array in others)


_UNARY = frozenset({"Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "HardSigmoid", "Tanh", "Elu"})
"""Activations that may stand before the output is split: each element depends on one element alone."""

