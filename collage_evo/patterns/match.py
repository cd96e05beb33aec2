"""The values that flow from matching to search to runtime: Match, Region, Placement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.graph.ir import NodeSet
from collage_evo.precision.transforms.edits import Edits, Numerics, edits_text, precisions_in, sites_in
from collage_evo.rewrites.rewrite import Sites


@dataclass(frozen=True)
class Part:
    """A convex set of nodes on one backend, and what is written into it before that compiles it."""

    nodes: NodeSet
    backend: str
    variant: str = "default"
    edits: Edits = ()

    @cached_property
    def numerics(self) -> Numerics:
        """Which of its nodes are written in a lower precision."""
        return precisions_in(self.edits)

    @cached_property
    def rewrites(self) -> Sites:
        """Which of its nodes other operators stand for, that compute the same."""
        return sites_in(self.edits)

    @property
    def family(self) -> tuple[str, str]:
        """Backend and the variant that it is compiled as: neighbouring matches of one family may merge."""
        return (self.backend, self.variant)


@dataclass(frozen=True)
class Match(Part):
    """One place where a pattern fits: a connected node set that ``backend`` takes as one piece."""

    pattern: str = field(default="", compare=False)
    base: str = ""
    """The variant that it is compiled as, where that is not its own: what differs are its edits."""

    @property
    def engine(self) -> tuple[str, str]:
        """Backend and variant: what its cost depends on."""
        return (self.backend, self.variant)

    @property
    def family(self) -> tuple[str, str]:
        return (self.backend, self.base or self.variant)


@dataclass(frozen=True)
class Region(Part):
    """A connected convex set of nodes that one engine runs as one compiled piece; ``variant`` is what compiles it."""

    matches: tuple[int, ...] = field(default=(), compare=False)
    """Indices of the matches it was merged from."""
    parts: tuple[tuple[str, NodeSet], ...] = field(default=(), compare=False)
    """Variants of the matches it was merged from, with their nodes; empty where all have ``variant``."""

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
    parts = f"{region.nodes:x}", region.backend, region.variant, edits_text(region.edits, ":")
    return ":".join(filter(None, parts))
