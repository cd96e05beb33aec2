"""Fusions: groups of operators that PyTorch has as one, and the steps that compute a region.

In eager mode every operator is a separate kernel that reads and writes memory. Attention, products with their bias
and activation, and the Gelu that older operator sets write out become one kernel or two instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.patterns.common import ATTENTION
from collage_evo.patterns.language import GraphPattern, Ops, Value, constant, either, optional
from collage_evo.patterns.matcher import TooManyWays
from collage_evo_cuda.torch.operators import OPERATORS, Call

Values = dict[str, Any]
"""Tensors of PyTorch by the names in the region."""


@dataclass(frozen=True)
class Step:
    """A computation of the tensors ``outputs`` from earlier ones."""

    outputs: tuple[str, ...]
    run: Callable[[Values], Sequence[Any]]


@dataclass(frozen=True)
class Fusion:
    """A pattern, and PyTorch's computation of its last output; None where it has none."""

    pattern: GraphPattern
    kernel: Callable[[Graph, Sequence[Node]], Callable[[Values], Any] | None]


def steps(graph: Graph, fusions: Sequence[Fusion] = ()) -> tuple[Step, ...]:
    """One step for each place where one of ``fusions`` fits, and one for each operator elsewhere."""
    groups = {max(members(nodes)): (nodes, kernel) for nodes, kernel in _groups(graph, fusions)}
    inside = sum(nodes for nodes, _ in groups.values())
    steps_of_graph = []
    for node in graph.nodes:
        if node.index in groups:
            # Only the last node of a group reads the outputs of the others.
            steps_of_graph.append(Step(node.outputs, partial(_single_result, groups[node.index][1])))
        elif not inside >> node.index & 1:
            steps_of_graph.append(Step(node.outputs, partial(_operator, graph, node)))
    return tuple(steps_of_graph)


def _single_result(kernel: Callable[[Values], Any], values: Values) -> tuple[Any]:
    return (kernel(values),)


def _operator(graph: Graph, node: Node, values: Values) -> Sequence[Any]:
    tensors = [values[name] if name else None for name in node.inputs]
    outputs = OPERATORS[node.op_type](Call(graph, node, tensors))
    return outputs if isinstance(outputs, tuple | list) else (outputs,)


def _groups(graph: Graph, fusions: Sequence[Fusion]) -> Iterator[tuple[NodeSet, Callable[[Values], Any]]]:
    """Places that share no operator, larger ones first."""
    places: list[tuple[NodeSet, Fusion]] = []
    for fusion in fusions:
        with suppress(TooManyWays):
            places += [(nodes, fusion) for nodes in fusion.pattern.find(graph, graph.all_nodes)]
    covered = 0
    for nodes, fusion in sorted(places, key=lambda place: -place[0].bit_count()):
        if not nodes & covered:
            kernel = fusion.kernel(graph, [graph.nodes[index] for index in members(nodes)])
            if kernel:
                covered |= nodes
                yield nodes, kernel


def _only(nodes: Sequence[Node], *op_types: str) -> Node | None:
    return next((node for node in nodes if node.op_type in op_types), None)


def _other(node: Node, operand: str) -> str:
    """The input of a binary operator that is not ``operand``."""
    return node.inputs[1] if node.inputs[0] == operand else node.inputs[0]


def _attention(graph: Graph, nodes: Sequence[Node]) -> Callable[[Values], Any] | None:
    first, *between, last = nodes
    scores = graph.tensors[first.outputs[0]].shape
    query, keys, value = *first.inputs, last.inputs[1]
    softmax, scaled, masked = (_only(between, *types) for types in (("Softmax",), ("Div", "Mul"), ("Add",)))
    batches = {graph.tensors[name].shape[:-2] for name in (query, keys, value)}
    last_axis = softmax is not None and softmax.attributes.get("axis", -1) in (-1, len(scores) - 1)
    if not last_axis or batches != {scores[:-2]} or len(scores) not in (3, 4):
        return None
    scale = 1.0
    if scaled:
        scale = float(graph.constants[_other(scaled, first.outputs[0])])
        if scaled.op_type == "Div":
            if scaled.inputs[0] != first.outputs[0] or not scale:
                return None
            scale = 1 / scale
    mask = _other(masked, (scaled or first).outputs[0]) if masked else ""
    if masked and graph.tensors[masked.outputs[0]].shape != scores:
        return None

    def kernel(values: Values) -> Any:
        import torch

        operands = [values[query], values[keys].transpose(-2, -1), values[value]]
        if mask:
            operands.append(values[mask].expand(scores))
        if len(scores) == 3:
            # Fused kernels take a batch of heads.
            operands = [tensor.unsqueeze(0) for tensor in operands]
        mixed = torch.nn.functional.scaled_dot_product_attention(*operands, scale=scale)
        return mixed.squeeze(0) if len(scores) == 3 else mixed

    return kernel


def _linear(op: Ops, x: Value) -> Value:
    return optional(lambda y: op.Relu(y), op.Add(op.MatMul(x, constant()), constant()))


def _linear_kernel(graph: Graph, nodes: Sequence[Node]) -> Callable[[Values], Any] | None:
    product, added, *activations = nodes
    input_, weight = product.inputs
    bias = _other(added, product.outputs[0])
    inner, shape = graph.tensors[weight].shape, graph.tensors[product.outputs[0]].shape
    fits = len(inner) == 2 and len(shape) > 1 and graph.tensors[bias].shape[-1:] == inner[1:]
    fits = fits and graph.constants[bias].size == inner[1] and "float" in graph.tensors[weight].dtype
    if not fits or graph.tensors[added.outputs[0]].shape != shape:
        return None
    multiply = _addmm(bool(activations))

    def kernel(values: Values) -> Any:
        rows = values[input_].reshape(-1, inner[0])
        return multiply(values[bias].reshape(-1), rows, values[weight]).reshape(shape)

    return kernel


def _gemm(op: Ops, x: Value) -> Value:
    return op.Relu(op.Gemm(x, constant(), constant()))


def _gemm_kernel(graph: Graph, nodes: Sequence[Node]) -> Callable[[Values], Any] | None:
    product = nodes[0]
    input_, weight, bias = product.inputs
    turned = [product.attributes.get(key, 0) for key in ("transA", "transB")]
    plain = all(product.attributes.get(key, 1.0) == 1.0 for key in ("alpha", "beta"))
    if not plain or graph.constants[bias].size != graph.tensors[product.outputs[0]].shape[1]:
        return None
    if graph.tensors[bias].shape[-1:] != graph.tensors[product.outputs[0]].shape[1:]:
        return None

    def kernel(values: Values) -> Any:
        left, right = (
            values[name].T if turn else values[name] for name, turn in zip((input_, weight), turned, strict=True)
        )
        return _addmm(True)(values[bias].reshape(-1), left, right)

    return kernel


def _addmm(rectified: bool) -> Callable[..., Any]:
    """A product with a bias of one axis, which cuBLASLt adds, and rectifies, before it writes the result.

    Its Gelu is always the tanh form, so that Gelu remains a separate kernel.
    """
    import torch

    function: Callable[..., Any] = torch._addmm_activation if rectified else torch.addmm
    return function


def _number(expected: float) -> Value:
    def equal(graph: Graph, name: str) -> bool:
        array = graph.constants[name]
        return array.size == 1 and math.isclose(array.item(), expected, rel_tol=1e-6)

    return constant(shape=(), where=equal)


def _gelu(op: Ops, x: Value) -> Value:
    """x / 2 * (1 + erf(x / sqrt 2)), in any order."""
    root = math.sqrt(2)
    tail = op.Add(op.Erf(either(op.Div(x, _number(root)), op.Mul(x, _number(1 / root)))), _number(1))
    half = _number(0.5)
    return either(op.Mul(op.Mul(x, tail), half), op.Mul(op.Mul(x, half), tail), op.Mul(x, op.Mul(tail, half)))


def _gelu_kernel(graph: Graph, nodes: Sequence[Node]) -> Callable[[Values], Any] | None:
    input_ = next(name for name in nodes[0].inputs if name not in graph.constants)
    inner = sum(1 << node.index for node in nodes)
    if graph.boundary(inner)[0] != (input_,):
        return None

    def kernel(values: Values) -> Any:
        import torch

        return torch.nn.functional.gelu(values[input_])

    return kernel


ATTENTIONS = (Fusion(ATTENTION, _attention),)
"""Fusions that Inductor finds by itself only in some forms."""
FUSIONS = (
    *ATTENTIONS,
    Fusion(GraphPattern("linear", _linear), _linear_kernel),
    Fusion(GraphPattern("gemm", _gemm), _gemm_kernel),
    Fusion(GraphPattern("gelu", _gelu), _gelu_kernel),
)
"""Fusions that pay on a GPU without a fusing compiler."""
