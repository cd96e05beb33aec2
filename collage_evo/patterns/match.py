"""Values that flow from matching to search to runtime: Match, Region, Placement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.graph.ir.graph import NodeSet
from collage_evo.precision.transforms.edits import Edits, Numerics, edits_text, precisions_in, sites_in
from collage_evo.rewrites.sites import Sites


@dataclass(frozen=True)
class Part:
    """A convex set of nodes on one backend, and the edits written into it before compilation."""

    nodes: NodeSet
    backend: str
    variant: str = "default"
    edits: Edits = ()

    @cached_property
    def numerics(self) -> Numerics:
        """Its nodes in lower precisions."""
        return precisions_in(self.edits)

    @cached_property
    def rewrites(self) -> Sites:
        """Its nodes that rewrites replace."""
        return sites_in(self.edits)

    @property
    def family(self) -> tuple[str, str]:
        """Backend and the variant that compiles it: neighbouring matches of one family may merge."""
        return (self.backend, self.variant)


@dataclass(frozen=True)
class Match(Part):
    """One place where a pattern fits: a connected node set that ``backend`` takes as one piece."""

    pattern: str = field(default="", compare=False)
    base: str = ""
    """The variant that compiles it, where that is not its own: they differ in edits."""

    @property
    def engine(self) -> tuple[str, str]:
        """Backend and variant, which determine its cost."""
        return (self.backend, self.variant)

    @property
    def family(self) -> tuple[str, str]:
        return (self.backend, self.base or self.variant)


@dataclass(frozen=True)
class Region(Part):
    """A connected convex set of nodes that one engine runs as one compiled piece; ``variant`` compiles it."""

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
        """Backend and variant of the match of ``node``."""
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
        """Equal for equal placements, whatever their genome."""
        parts = sorted(_region_key(region) for region in self.regions)
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _region_key(region: Region) -> str:
    parts = f"{region.nodes:x}", region.backend, region.variant, edits_text(region.edits, ":")
    return ":".join(filter(None, parts))
