"""Patterns that most backends share."""

from __future__ import annotations

from collage_evo.graph.ir.operators import ELEMENTWISE, HEAVY
from collage_evo.patterns.language import GraphPattern, Ops, Pattern, Value, chain, constant, optional
from collage_evo.patterns.regions import Regions


def single(op: Ops) -> Value:
    """Every operator by itself."""
    return op.any_of()(...)


def epilogue(op: Ops) -> Value:
    """A heavy operator and its epilogue, the elementwise ones that are its only readers: bias, residual, activation.

    Every prefix is a match, so that the search may give the tail to another backend.
    """
    return chain(lambda x: op.any_of(*ELEMENTWISE)(..., x, ...), op.any_of(*HEAVY)(...), most=3)


def elementwise(op: Ops) -> Value:
    """Chains of elementwise operators."""

    def step(x: Value) -> Value:
        return op.any_of(*ELEMENTWISE)(..., x, ...)

    return chain(step, op.any_of(*ELEMENTWISE)(...), most=7)


def attention(op: Ops, q: Value, k: Value, v: Value, mask: Value) -> Value:
    """Scaled dot-product attention as exporters write it, masked or not."""
    scores = optional(lambda x: op.any_of("Div", "Mul")(x, constant(shape=())), op.MatMul(q, k))
    return op.MatMul(op.Softmax(optional(lambda x: op.Add(x, mask), scores)), v)


SINGLE = GraphPattern("single", single)
EPILOGUE = GraphPattern("epilogue", epilogue)
CHAIN = GraphPattern("chain", elementwise)
ATTENTION = GraphPattern("attention", attention)


def general_patterns() -> tuple[Pattern, ...]:
    """Single operators, heavy ones with their epilogue, elementwise chains, attention, maximal regions."""
    return (SINGLE, EPILOGUE, CHAIN, ATTENTION, Regions())
