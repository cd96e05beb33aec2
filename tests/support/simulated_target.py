"""A simulated target: takes a cost model, gives deterministic latencies, noisy or non-additive as told."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from collage_evo.genome.cost_model import Engine, bordering, crossings, transfers
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import NodeSet, members
from collage_evo.patterns.match import Placement, Region

CACHE_BYTES = 1_000_000
"""Up to so many bytes of intermediate tensors a simulated region stays in the cache."""


@dataclass(frozen=True)
class NonAdditive:
    """What a sum of parts does not see. All zero is the additive model itself.

    Attributes:
        layout: how much a node gains or loses, as a fraction, from its predecessor's engine (whole-graph
            layout and cache effects); the sign and size of each pair are drawn once a target.
        region: fraction a region gains for each doubling of its number of nodes (fusion inside a region), at
            most half.
        cache: fraction a region loses for each doubling of its intermediate bytes above ``CACHE_BYTES``.
        contention: fraction everything loses for each pair of backends used (thread pools in each other's
            way), on average; drawn for each pair once a target.
        failures: share of regions, drawn once a target, that fail to build.
        converted_once: a tensor that one region of an engine took over a border is free for its other regions.
    """

    layout: float = 0.0
    region: float = 0.0
    cache: float = 0.0
    contention: float = 0.0
    failures: float = 0.0
    converted_once: bool = False


@dataclass
class SimulatedEvaluator:
    """Evaluates by arithmetic; the same placement always has the same outcome. ``noise`` is relative."""

    space: SearchSpace
    effects: NonAdditive = NonAdditive()
    noise: float = 0.0
    seed: int = 0
    node_error2: Mapping[tuple[int, Engine], float] = field(default_factory=dict)
    """What a node adds to the squared relative error on an engine; on those not named nothing."""
    kinds: Sequence[int] = ()
    """Nodes of the same number have the same layout effects; by default each has its own."""
    evaluated: list[str] = field(default_factory=list)
    """Keys of all placements that were asked for, in order."""

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
        """One outcome a placement, in order."""
        asked = tuple(placements)
        self.evaluated += [placement.key for placement in asked]
        return [self.outcome(placement) for placement in asked]

    def outcome(self, placement: Placement) -> Outcome:
        """What measuring ``placement`` gives, without a note of it in ``evaluated``."""
        if self.effects.failures:
            for region in placement.regions:
                if self._draw("fails", region.nodes, *region.engine) < self.effects.failures:
                    size = region.nodes.bit_count()
                    why = f"{region.backend} could not build a region of {size} nodes"
                    return Outcome.unfit(Failure(Fault.BUILD, why))
        latency = self.latency_ms(placement)
        if self.noise:
            # The sum of three uniform draws: bell-shaped, bounded, of unit variance.
            bell = 2 * sum(self._draw("noise", placement.key, i) - 0.5 for i in range(3))
            latency *= max(0.5, 1 + self.noise * bell)
        spread = 1.3 * self.noise
        return Outcome(latency, latency * (1 - spread), latency * (1 + spread), n=10, error=self.error(placement))

    def error(self, placement: Placement) -> float:
        """Relative error of the outputs."""
        if not self.node_error2:
            return 0.0
        used = (self.space.matches[match] for region in placement.regions for match in region.matches)
        return math.sqrt(sum(self.node_error2.get((i, m.engine), 0.0) for m in used for i in members(m.nodes)))

    def latency_ms(self, placement: Placement) -> float:
        """Latency without noise, in ms."""
        total = self._borders_ms(placement)
        off_host = self.space.cost.off_host
        total += sum(copy.ms(self.space.cost) for copy in transfers(self.space.flows, placement, off_host))
        engine = _engines(placement)
        for region in placement.regions:
            inner = self._inner_ms(region)
            total += inner + self.region_ms(region.nodes, inner)
        if self.effects.layout:
            total += sum(self.layout_ms(i, engine[i], j, engine[j]) for i, j in self.space.edges)
        return total * self.contention({region.backend for region in placement.regions})

    def _borders_ms(self, placement: Placement) -> float:
        cost = self.space.cost
        if not self.effects.converted_once:
            return sum(crossing.ms(cost) for crossing in crossings(self.space.flows, placement))
        engine = _engines(placement)
        total = 0.0
        for flow in self.space.flows:
            source = engine[flow.producer] if flow.producer >= 0 else None
            readers = {engine[node] for node in members(flow.consumers)} - {source}
            total += sum(cost.crossing_ms(source, reader, flow.nbytes) for reader in sorted(readers))
            total += cost.crossing_ms(source, None, flow.nbytes) if flow.is_output else 0.0
        return total

    def _inner_ms(self, region: Region) -> float:
        """The cheapest way to put the region together: it is one piece, whichever matches led to it."""
        if region.parts:  # several engines in one piece: their matches are what there is to go by
            return sum(self.space.cost.match_ms[match] for match in region.matches)
        key = (region.nodes, region.engine)
        if key not in self._inner:
            self._inner[key] = cheapest_tiling_ms(self.space, region)
        return self._inner[key]

    def region_ms(self, nodes: NodeSet, inner_ms: float) -> float:
        """What one region costs beyond its matches: less for fusion, more once it outgrows the cache (ms)."""
        if not (self.effects.region or self.effects.cache):
            return 0.0
        gain = min(0.5, self.effects.region * math.log2(nodes.bit_count()))
        made = sum(flow.nbytes for flow in self.space.flows if flow.producer >= 0 and nodes >> flow.producer & 1)
        loss = self.effects.cache * max(0.0, math.log2(max(1, made) / CACHE_BYTES))
        return inner_ms * (loss - gain)

    def layout_ms(self, source: int, first: Engine, target: int, second: Engine) -> float:
        """What node ``target`` on engine ``second`` loses (or gains) after ``source`` on ``first`` (ms)."""
        key = (source, target, first, second)
        if key not in self._layouts:
            ends = (self.kinds[source], self.kinds[target]) if self.kinds else (source, target)
            swing = 2 * self._draw("layout", *ends, *first, *second) - 1
            self._layouts[key] = self.effects.layout * swing * self._cheapest[target]
        return self._layouts[key]

    def contention(self, backends: Iterable[str]) -> float:
        """Factor on everything when ``backends`` share the process."""
        pairs = combinations(sorted(backends), 2)
        return 1 + sum(2 * self.effects.contention * self._draw("contention", *pair) for pair in pairs)

    @cached_property
    def _layouts(self) -> dict[tuple[int, int, Engine, Engine], float]:
        return {}

    @cached_property
    def _inner(self) -> dict[tuple[NodeSet, Engine], float]:
        return {}

    @cached_property
    def _cheapest(self) -> list[float]:
        return [min(map(self.space.ms_per_node, options)) for options in self.space.candidates]

    def _draw(self, *key: object) -> float:
        """A uniform draw from 0 to 1 that depends on the key and the target's seed only."""
        text = "|".join(map(str, (self.seed, *key)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64


def _engines(placement: Placement) -> dict[int, Engine]:
    return {n: bordering(region.engine_of(n)) for region in placement.regions for n in members(region.nodes)}


def cheapest_tiling_ms(space: SearchSpace, region: Region) -> float:
    """Least cost of matches of the region's engine that cover it exactly, in ms."""
    left = {region.nodes: 0.0}
    waiting = [(-region.nodes.bit_count(), region.nodes)]
    while True:
        missing = heapq.heappop(waiting)[1]
        if not missing:
            return left[missing]
        for match in space.candidates[(missing & -missing).bit_length() - 1]:
            nodes = space.matches[match].nodes
            if space.matches[match].engine != region.engine or nodes & ~missing:
                continue
            rest, cost = missing & ~nodes, left[missing] + space.cost.match_ms[match]
            if rest not in left:
                heapq.heappush(waiting, (-rest.bit_count(), rest))
            left[rest] = min(cost, left.get(rest, math.inf))
