"""A simulated target: takes a cost model, gives deterministic latencies, noisy or non-additive as told."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from collage_evo.fitness.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir import members
from collage_evo.patterns.match import Placement, Region


@dataclass(frozen=True)
class NonAdditive:
    """What a sum of parts does not see. All zero is the additive model itself.

    Attributes:
        layout: how much a node gains or loses, as a fraction, from its predecessor's engine (whole-graph
            layout and cache effects); the sign and size of each pair are drawn once a target.
        region: fraction a region gains for each doubling of its number of nodes (fusion inside a region).
        contention: fraction everything loses for each backend beyond the first (thread pools in each other's
            way).
        failures: share of regions, drawn once a target, that fail to build.
    """

    layout: float = 0.0
    region: float = 0.0
    contention: float = 0.0
    failures: float = 0.0


@dataclass
class SimulatedEvaluator:
    """Evaluates by arithmetic; the same placement always has the same outcome. ``noise`` is relative."""

    space: SearchSpace
    terms: NonAdditive = NonAdditive()
    noise: float = 0.0
    seed: int = 0
    evaluated: list[str] = field(default_factory=list)
    """Keys of all placements that were asked for, in order."""

    def evaluate(self, placements: Sequence[Placement]) -> list[Outcome]:
        """One outcome a placement, in order."""
        self.evaluated += [placement.key for placement in placements]
        return [self.outcome(placement) for placement in placements]

    def outcome(self, placement: Placement) -> Outcome:
        """What measuring ``placement`` gives, without a note of it in ``evaluated``."""
        for region in placement.regions:
            if self._draw("fails", region.nodes, *region.engine) < self.terms.failures:
                size = region.nodes.bit_count()
                return Outcome.unfit(f"{region.backend} could not build a region of {size} nodes")
        latency = self.latency_ms(placement)
        # The sum of three uniform draws: bell-shaped, bounded, of unit variance.
        bell = 2 * sum(self._draw("noise", placement.key, i) - 0.5 for i in range(3))
        latency *= max(0.5, 1 + self.noise * bell)
        spread = 1.3 * self.noise
        return Outcome(latency, latency * (1 - spread), latency * (1 + spread), n=10, error=0.0)

    def latency_ms(self, placement: Placement) -> float:
        """Latency without noise, in ms."""
        terms, cost = self.terms, self.space.cost
        total = self.space.predict(placement)
        owner = {node: region for region in placement.regions for node in members(region.nodes)}
        for region in placement.regions:
            inner = sum(cost.match_ms[match] for match in region.matches)
            total -= inner * min(0.5, terms.region * math.log2(region.nodes.bit_count()))
        if terms.layout:
            total += sum(self._layout_ms(i, owner[i], j, owner[j]) for i, j in self.space.edges)
        backends = len({region.backend for region in placement.regions})
        return total * (1 + terms.contention * (backends - 1))

    def _layout_ms(self, source: int, first: Region, target: int, second: Region) -> float:
        swing = 2 * self._draw("layout", source, target, *first.engine, *second.engine) - 1
        cheapest = min(self.space.ms_per_node(match) for match in self.space.candidates[target])
        return self.terms.layout * swing * cheapest

    def _draw(self, *key: object) -> float:
        """A uniform draw from 0 to 1 that depends on the key and the target's seed only."""
        text = "|".join(map(str, (self.seed, *key)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
