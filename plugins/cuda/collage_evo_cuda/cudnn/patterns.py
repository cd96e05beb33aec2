"""Patterns of the cuDNN backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collage_evo.graph.ir.graph import Graph, NodeSet, node_set
from collage_evo.patterns.language import GraphPattern, Ops, Pattern, Value, chain, constant, optional
from collage_evo.patterns.regions import Regions
from collage_evo_cuda.cudnn.rules import BINARY, HEAVY, UNARY


def heavy(op: Ops) -> Value:
    """A convolution or product on its own."""
    return op.any_of(*HEAVY)(...)


def epilogue(op: Ops) -> Value:
    """A convolution or product, and the elementwise operators that are its result's only readers."""
    return chain(lambda x: op.any_of(*UNARY, *BINARY)(..., x, ...), heavy(op), most=3)


def attention(op: Ops, q: Value, k: Value, v: Value, mask: Value) -> Value:
    """Scaled dot-product attention with the Transposes around it: to cuDNN these are strides.

    The keys' Transpose must be in it, since a head's elements have to be contiguous.
    """
    product = op.MatMul(optional(op.Transpose, q), op.Transpose(k))
    scores = optional(lambda x: op.any_of("Div", "Mul")(x, constant(where=_scalar)), product)
    mixed = op.MatMul(op.Softmax(optional(lambda x: op.Add(x, mask), scores)), optional(op.Transpose, v))
    return optional(op.Transpose, mixed)


def _scalar(graph: Graph, name: str) -> bool:
    return graph.constants[name].size == 1


@dataclass(frozen=True)
class StepRegions(Pattern):
    """Large pieces of consecutive steps. Operators that only attention can have end them."""

    name: str = "region"

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        ends = node_set(node.index for node in graph.nodes if node.op_type in ("Softmax", "Transpose"))
        yield from Regions().find(graph, supported & ~ends)


PATTERNS = (
    GraphPattern("heavy", heavy),
    GraphPattern("epilogue", epilogue),
    GraphPattern("attention", attention),
    StepRegions(),
)
