"""The values that flow from matching to search to runtime: Match, Region, Placement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.graph.ir import NodeSet
from collage_evo.patterns.schedule import SEQUENTIAL, Schedule


@dataclass(frozen=True)
class Match:
    """One place where a pattern fits: a convex, connected node set that ``backend`` takes as one piece."""

    nodes: NodeSet
    backend: str
    variant: str = "default"
    pattern: str = field(default="", compare=False)

    @property
    def engine(self) -> tuple[str, str]:
        """Backend and variant: neighbouring matches of one engine may merge."""
        return (self.backend, self.variant)


@dataclass(frozen=True)
class Region:
    """A connected convex set of nodes that one engine runs as one compiled piece."""

    nodes: NodeSet
    backend: str
    variant: str = "default"
    matches: tuple[int, ...] = field(default=(), compare=False)
    """Indices of the matches it was merged from."""

    @property
    def engine(self) -> tuple[str, str]:
        return (self.backend, self.variant)


@dataclass(frozen=True)
class Placement:
    """An exact cover of the graph by regions, in an order in which they can run, and which may run together."""

    regions: tuple[Region, ...]
    schedule: Schedule = SEQUENTIAL

    @cached_property
    def key(self) -> str:
        """Equal for equal placements, whatever genome they came from."""
        parts = sorted(f"{r.nodes:x}:{r.backend}:{r.variant}" for r in self.regions)
        for together in self.schedule.together:
            parts.append("+".join(sorted(f"{r.nodes:x}" for r in self.regions[slice(*together)])))
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
