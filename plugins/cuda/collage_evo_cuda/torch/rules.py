"""Operators that the PyTorch backend takes, with the reasons against others."""

from __future__ import annotations

from collections.abc import Mapping

from collage_evo.backends.base import YES, Support, no
from collage_evo.backends.checks import (
    Rule,
    by_whole_numbers,
    casts_to_whole,
    constant,
    plain,
    present,
    refused_by,
    when,
)
from collage_evo.graph.ir.graph import Graph, Node

_DTYPES = frozenset({"float32", "int64", "int32", "bool"})
_NUMBERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Split", "Expand"), (1,)),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), (1,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 2, 3),
    "Resize": (1, 2, 3),
}
"""Inputs that must be constant, because the traced program has them built in."""


def judge(graph: Graph, node: Node, operators: Mapping[str, object]) -> Support:
    """Whether ``node`` is taken; ``operators`` are those with a translation."""
    verdict = plain(graph, node, _DTYPES)
    if not verdict:
        return verdict
    if node.op_type not in operators:
        return no(f"{node.op_type} is not among the operators that are translated to PyTorch")
    for position in _NUMBERS.get(node.op_type, ()):
        if present(node, position) and constant(graph, node, position) is None:
            return no(f"{node.op_type}: {node.inputs[position]} is computed, not constant")
    reason = refused_by(_RULES, graph, node)
    return no(reason) if reason else YES


def _conv_transpose(graph: Graph, node: Node) -> str:
    pads = node.attributes.get("pads", [])
    if pads[: len(pads) // 2] != pads[len(pads) // 2 :]:
        return "uneven pads are not taken"
    odd = "output_shape" in node.attributes or node.attributes.get("auto_pad", "NOTSET") != "NOTSET"
    return "its padding is not given by pads" if odd else ""


def _pool(graph: Graph, node: Node) -> str:
    if len(node.outputs) > 1:
        return "indices are not given"
    if len(graph.tensors[node.inputs[0]].shape) not in (3, 4, 5):
        return "only one to three spatial axes are taken"
    dilated = node.op_type == "AveragePool" and set(node.attributes.get("dilations", [1])) != {1}
    return "dilations are not taken" if dilated else ""


def _layer_normalization(graph: Graph, node: Node) -> str:
    if len(node.outputs) > 1:
        return "only one output is taken"
    shape = graph.tensors[node.inputs[0]].shape
    scaled = shape[node.attributes.get("axis", -1) % len(shape) :]
    spread = [name for name in node.inputs[1:] if name and graph.tensors[name].shape != scaled]
    return f"{spread[0]} is to be broadcast" if spread else ""


def _slice(graph: Graph, node: Node) -> str:
    steps = constant(graph, node, 4)
    return "" if steps is None or (steps == 1).all() else "steps are not taken"


def _pad(graph: Graph, node: Node) -> str:
    if node.attributes.get("mode", "constant") != "constant":
        return f"mode {node.attributes['mode']} is not taken"
    return "axes are not taken" if present(node, 3) else ""


def _resize(graph: Graph, node: Node) -> str:
    wanted = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    if any(node.attributes.get(key) != value for key, value in wanted.items()):
        return "only nearest, floor, asymmetric is taken"
    return "" if by_whole_numbers(graph, node) else "only whole scales are taken"


_ONLY_FLOATS = when(
    lambda graph, node: {graph.tensors[name].dtype for name in node.inputs} != {"float32"}, "only float32 is taken"
)
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("Pow", "Gemm", "Div"), _ONLY_FLOATS),
    "ConvTranspose": _conv_transpose,
    "LRN": when(lambda graph, node: node.attributes.get("size", 1) % 2 == 0, "a window of even size is not taken"),
    "BatchNormalization": when(lambda graph, node: node.attributes.get("training_mode"), "training is not taken"),
    "LayerNormalization": _layer_normalization,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "ArgMax": when(lambda graph, node: node.attributes.get("select_last_index"), "the last of equals is not given"),
    "Cast": when(casts_to_whole, "floats that no integer holds differ"),
}
