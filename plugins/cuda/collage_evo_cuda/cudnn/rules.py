"""Operators that the cuDNN backend takes, with the reasons against others, and cuDNN's names for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from collage_evo.backends.base import YES, Support, no
from collage_evo.backends.checks import constant, plain, present
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.windows import spatial_pads

_DTYPES = frozenset({"float32"})
HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
UNARY: Mapping[str, str] = {
    **{"Relu": "relu", "Clip": "relu", "LeakyRelu": "relu", "Elu": "elu", "Sigmoid": "sigmoid", "Tanh": "tanh"},
    **{"Softplus": "softplus", "Erf": "erf", "Exp": "exp", "Sqrt": "sqrt", "Abs": "abs", "Neg": "neg"},
    **{"Log": "log", "Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil", "Gelu": "gelu"},
}
BINARY: Mapping[str, str] = {
    **{"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min", "Pow": "pow"},
    "Sum": "add",
}
BEHIND_CONVOLUTION = frozenset({"Relu", "Clip", "Sigmoid", "Tanh", "Elu"})
"""Activations that cuDNN computes inside a convolution in any layout; the others need channels innermost."""
HEAD_SIZES = range(8, 129, 8)
_AXES = 3
"""Axes on which cuDNN takes elementwise operations without asking for a layout."""
Shape = tuple[int, ...]


def judge(graph: Graph, node: Node) -> Support:
    """Whether ``node`` can be part of a region, by itself or inside attention."""
    if not (verdict := plain(graph, node, _DTYPES)):
        return verdict
    if node.op_type in ("Softmax", "Transpose"):
        return YES  # for attention; every other region with one is refused as a whole
    if node.op_type not in HEAVY | UNARY.keys() | BINARY.keys():
        return no(f"{node.op_type} is no operation of cuDNN's that fits behind a convolution or a product")
    rule = _RULES.get(node.op_type, _elementwise)
    reason = rule(graph, node)
    return no(f"{node.op_type}: {reason}") if reason else YES


def bounds(graph: Graph, node: Node) -> tuple[float, float]:
    """Least and greatest output of a Clip or Relu; infinite where there is none."""
    if node.op_type != "Clip":
        return 0.0, np.inf
    low, high = (constant(graph, node, position) for position in (1, 2))
    return (-np.inf if low is None else float(low)), (np.inf if high is None else float(high))


def geometry(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, strides and dilations of a convolution."""
    kernel = graph.tensors[node.inputs[1]].shape[2:]
    ones = (1,) * len(kernel)
    return kernel, tuple(node.attributes.get("strides", ones)), tuple(node.attributes.get("dilations", ones))


def _convolution(graph: Graph, node: Node) -> str:
    if constant(graph, node, 1) is None:
        return "its weights are computed, not constant"
    if present(node, 2) and constant(graph, node, 2) is None:
        return "its bias is computed, not constant"
    if len(graph.tensors[node.inputs[0]].shape) not in (3, 4, 5):
        return "only one to three spatial axes are taken"
    if node.op_type == "ConvTranspose" and (reason := _transposed(node)):
        return reason
    pads = spatial_pads(graph, node, geometry(graph, node)[0])
    return "negative pads are not taken" if min(map(min, pads)) < 0 else ""


def _transposed(node: Node) -> str:
    if node.attributes.get("group", 1) != 1:
        return "groups are not taken"
    by_pads = "output_shape" not in node.attributes and node.attributes.get("auto_pad", "NOTSET") in ("", "NOTSET")
    return "" if by_pads else "its padding is not given by pads"


def _matmul(graph: Graph, node: Node) -> str:
    left, right = (graph.tensors[name].shape for name in node.inputs)
    if node.inputs[0] in graph.constants:
        return "a constant left side is not taken"
    if min(len(left), len(right)) < 2:
        return "vectors are not taken"
    if node.inputs[1] in graph.constants:
        one = prod(right[:-2]) == 1 and len(right) <= len(left)
        return "" if one else "its constant side is more than one matrix"
    return "" if left[:-2] == right[:-2] else "one side is repeated for the batch of the other"


def _gemm(graph: Graph, node: Node) -> str:
    attributes = node.attributes
    if attributes.get("transA", 0) or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        return "scaled, or with its left side transposed, it is not taken"
    if node.inputs[0] in graph.constants or constant(graph, node, 1) is None:
        return "its right side alone must be constant"
    if not present(node, 2):
        return ""
    wide = graph.tensors[node.outputs[0]].shape[1]
    added = constant(graph, node, 2)
    fits = added is not None and (added.size == 1 or added.shape in ((wide,), (1, wide)))
    return "" if fits else "what it adds is no constant for each column"


def _elementwise(graph: Graph, node: Node) -> str:
    if node.op_type in BINARY and len(node.inputs) != 2:
        return "only two inputs are taken"
    if all(name in graph.constants for name in node.inputs if name):
        return "it reads constants only"
    if node.op_type == "Elu" and node.attributes.get("alpha", 1.0) != 1.0:
        return "only alpha 1 is taken"
    if node.op_type == "Clip":
        computed = any(present(node, position) and constant(graph, node, position) is None for position in (1, 2))
        if computed:
            return "its bounds are computed, not constant"
        return "" if np.isfinite(bounds(graph, node)[0]) else "without a lower bound it is not taken"
    shapes = [graph.tensors[name].shape for name in node.inputs if name]
    spread = collapse(graph.tensors[node.outputs[0]].shape, shapes) is None
    return "its inputs are spread over too many axes apart" if spread else ""


def collapse(shape: Shape, operands: Sequence[Shape]) -> tuple[Shape, list[Shape]] | None:
    """``shape`` on three axes, and each operand broadcast to it on the same three; None if three are too few.

    Neighbouring axes become one where each operand either has both or is broadcast along both.
    """
    padded = [(1,) * (len(shape) - len(operand)) + tuple(operand) for operand in operands]
    merged: list[tuple[int, tuple[bool, ...]]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        has = tuple(operand[axis] == size for operand in padded)
        if merged and merged[-1][1] == has:
            merged[-1] = (merged[-1][0] * size, has)
        else:
            merged.append((size, has))
    if len(merged) > _AXES:
        return None
    merged = [(1, (True,) * len(operands))] * (_AXES - len(merged)) + merged
    sizes = tuple(size for size, _ in merged)
    return sizes, [tuple(s if has[k] else 1 for s, has in merged) for k in range(len(operands))]


_RULES: Mapping[str, Callable[[Graph, Node], str]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MatMul": _matmul,
    "Gemm": _gemm,
}
