"""Numerics: which nodes of a piece are written in a lower precision; values that compare, join and travel as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from collage_evo.codec import As
from collage_evo.graph.ir import NodeSet, nodes_from
from collage_evo.quantise.arithmetic import Arithmetic

Numerics = Annotated[
    tuple[tuple[Arithmetic, NodeSet], ...],
    As(lambda numerics: numerics_text(numerics), lambda text: numerics_from(text)),
]
"""Node sets by what is written for them, disjoint, none empty, sorted. Other nodes are compiled as they are."""


def numerics_of(*parts: tuple[Arithmetic, NodeSet]) -> Numerics:
    """Node sets by arithmetic; a node that several name has the first one's."""
    found: dict[Arithmetic, NodeSet] = {}
    taken = 0
    for arithmetic, nodes in parts:
        if new := nodes & ~taken:
            found[arithmetic] = found.get(arithmetic, 0) | new
            taken |= new
    return tuple(sorted(found.items()))


def nodes_in(numerics: Numerics, arithmetic: Arithmetic) -> NodeSet:
    """The nodes that are written in ``arithmetic``."""
    return next((nodes for one, nodes in numerics if one is arithmetic), 0)


def joined(some: Iterable[Numerics]) -> Numerics:
    """All of them; where they differ over a node, the first counts."""
    return numerics_of(*(part for numerics in some for part in numerics))


def within(numerics: Numerics, nodes: NodeSet) -> Numerics:
    """What ``numerics`` say of ``nodes``."""
    return numerics_of(*((arithmetic, own & nodes) for arithmetic, own in numerics))


def numerics_text(numerics: Numerics) -> str:
    """``numerics`` as text, node sets in hexadecimal; empty for none.

    int8 alone is a number without its name, as in files of versions that knew no other.
    """
    if len(numerics) == 1 and numerics[0][0] is Arithmetic.INT8:
        return f"{numerics[0][1]:x}"
    return ",".join(f"{arithmetic.value}:{nodes:x}" for arithmetic, nodes in numerics)


def numerics_from(text: str) -> Numerics:
    """The numerics that :func:`numerics_text` described.

    Raises:
        ValueError: it described none.
    """
    pairs = (part.rpartition(":") for part in text.split(",") if part)
    return numerics_of(*((Arithmetic(name or Arithmetic.INT8), nodes_from(nodes)) for name, _, nodes in pairs))
