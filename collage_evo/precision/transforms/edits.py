"""Edits: which transforms are written into which nodes of a piece, as values with a text form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from collage_evo.codec import As
from collage_evo.graph.ir.graph import NodeSet, nodes_from
from collage_evo.precision.quantise.arithmetic import Arithmetic

if TYPE_CHECKING:
    from collage_evo.rewrites.sites import Sites

Numerics = tuple[tuple[Arithmetic, NodeSet], ...]
"""Node sets by the lower precision that is written into them, disjoint, none empty, sorted."""
Edits = Annotated[tuple[tuple[str, NodeSet], ...], As(lambda edits: edits_text(edits), lambda text: edits_from(text))]
"""Names of transforms with node sets: first precisions, as ``Numerics`` has them, then rewrites, each site apart,
sorted. Other nodes are compiled as they are."""

_PRECISIONS = frozenset(map(str, Arithmetic))


def edits_of(*parts: tuple[str, NodeSet]) -> Edits:
    """``parts`` as one value; of several precisions of a node the first counts."""
    return (*precisions_in(parts), *sorted(sites_in(parts))) if parts else ()


def precisions_in(edits: Edits) -> Numerics:
    """The precisions among ``edits``."""
    return numerics_of(*(part for part in edits if part[0] in _PRECISIONS))


def sites_in(edits: Edits) -> Sites:
    """The rewrites among ``edits``."""
    return tuple(part for part in edits if part[0] not in _PRECISIONS)


def numerics_of(*parts: tuple[str, NodeSet]) -> Numerics:
    """Node sets by arithmetic; of several arithmetics of a node the first counts."""
    by_arithmetic: dict[str, NodeSet] = {}
    assigned = 0
    for name, nodes in parts:
        if new := nodes & ~assigned:
            by_arithmetic[name] = by_arithmetic.get(name, 0) | new
            assigned |= new
    return tuple((Arithmetic(name), nodes) for name, nodes in sorted(by_arithmetic.items()))


def nodes_in(edits: Edits, arithmetic: Arithmetic) -> NodeSet:
    """The nodes that are written in ``arithmetic``."""
    return next((nodes for name, nodes in edits if name == arithmetic), 0)


def joined(parts: Iterable[Edits]) -> Edits:
    """The union; of several precisions of a node the first counts."""
    return edits_of(*(part for each_part in parts for part in each_part))


def within(numerics: Numerics, nodes: NodeSet) -> Numerics:
    """``numerics`` restricted to ``nodes``."""
    return numerics_of(*((arithmetic, written & nodes) for arithmetic, written in numerics))


def edits_text(edits: Edits, between: str = ",") -> str:
    """``edits`` as text, node sets in hexadecimal; empty for none. ``between`` precedes rewrites.

    int8 as the only precision is a number without a name.
    """
    if not edits:  # a fast path: placements are named often
        return ""
    numerics = precisions_in(edits)
    only_int8 = [name for name, _ in numerics] == [Arithmetic.INT8]
    written = ",".join(f"{nodes:x}" if only_int8 else f"{name}:{nodes:x}" for name, nodes in numerics)
    rewritten = ",".join(f"{name}:{nodes:x}" for name, nodes in sites_in(edits))
    return between.join(filter(None, (written, rewritten)))


def edits_from(text: str) -> Edits:
    """Parse the text of :func:`edits_text`.

    Raises:
        ValueError: ``text`` describes no edits.
    """
    pairs = (part.rpartition(":") for part in text.split(",") if part)
    return edits_of(*((name or Arithmetic.INT8.value, nodes_from(nodes)) for name, _, nodes in pairs))
