"""The values that flow from matching to search to runtime: Match, Region, Placement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.graph.ir import NodeSet
from collage_evo.quantise.numerics import Numerics, numerics_text
from collage_evo.rewrites.rewrite import Sites, sites_text


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits: a convex, connected node set that ``backend`` takes as one piece."""

    nodes: NodeSet
    backend: str
    variant: str = "default"
    pattern: str = field(default="", compare=False)
    base: str = ""
    """The variant that it is compiled as, where that is not its own: what differs is written into the piece."""
    numerics: Numerics = ()
    """Which of its nodes are written in a lower precision."""
    exact: bool = field(default=True, compare=False)
    """Whether it computes in float32."""
    rewrites: Sites = ()
    """Which of its nodes other operators stand for, that compute the same."""

    @property
    def engine(self) -> tuple[str, str]:
        """Backend and variant: what its cost depends on."""
        return (self.backend, self.variant)

    @property
    def family(self) -> tuple[str, str]:
        """Backend and the variant that it is compiled as: neighbouring matches of one family may merge."""
        return (self.backend, self.base or self.variant)


@dataclass(frozen=True)
class Region:
    """A connected convex set of nodes that one engine runs as one compiled piece."""

    nodes: NodeSet
    backend: str
    variant: str = "default"
    """The one that it is compiled as."""
    numerics: Numerics = ()
    """Which of its nodes are written in a lower precision."""
    rewrites: Sites = ()
    """Which of its nodes other operators stand for, that compute the same."""
    matches: tuple[int, ...] = field(default=(), compare=False)
    """Indices of the matches it was merged from."""
    parts: tuple[tuple[str, NodeSet], ...] = field(default=(), compare=False)
    """Variants of the matches it was merged from, with their nodes; empty where all have ``variant``."""

    @property
    def family(self) -> tuple[str, str]:
        """Backend and variant that it is compiled with."""
        return (self.backend, self.variant)

    @property
    def engine(self) -> tuple[str, str]:
        """Backend and variant of most of its nodes."""
        variant, _ = max(self.parts, key=lambda part: part[1].bit_count(), default=(self.variant, 0))
        return (self.backend, variant)

    def engine_of(self, node: int) -> tuple[str, str]:
        """Backend and variant of the match that ``node`` came with."""
        for variant, nodes in self.parts:
            if nodes >> node & 1:
                return (self.backend, variant)
        return (self.backend, self.variant)


@dataclass(frozen=True)
class Placement:
    """An exact cover of the graph by regions, in an order in which they can run."""

    regions: tuple[Region, ...]

    @cached_property
    def key(self) -> str:
        """Equal for equal placements, whatever genome they came from."""
        parts = sorted(_region_key(region) for region in self.regions)
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _region_key(region: Region) -> str:
    written = f":{numerics_text(region.numerics)}" if region.numerics else ""
    rewritten = f":{sites_text(region.rewrites)}" if region.rewrites else ""
    return f"{region.nodes:x}:{region.backend}:{region.variant}{written}{rewritten}"
