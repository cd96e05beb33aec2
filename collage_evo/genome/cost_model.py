"""Additive cost model: predicts latency from measured costs of matches and borders."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from collage_evo.backends.variants import plain_name
from collage_evo.graph.ir.graph import Graph, NodeSet, members, node_set
from collage_evo.patterns.match import Placement

Engine = tuple[str, str]
"""Backend and variant, as in :attr:`Match.engine`."""

BYTES_PER_MB = 1e6


@cache
def bordering(engine: Engine) -> Engine:
    """The engine whose borders ``engine`` has: a rewrite inside a piece changes none of them."""
    backend, variant = engine
    return (backend, plain_name(variant))


@dataclass(frozen=True)
class Border:
    """Cost of one side of a backend border (to enter or to leave one engine): ms, ms per 10^6 bytes."""

    fixed_ms: float
    ms_per_mb: float

    def scaled(self, factor: float) -> Border:
        """A border that costs ``factor`` times as much."""
        return Border(self.fixed_ms * factor, self.ms_per_mb * factor)

    def ms(self, nbytes: int) -> float:
        """Cost for a tensor of ``nbytes``."""
        return self.fixed_ms + self.ms_per_mb * nbytes / BYTES_PER_MB


@dataclass(frozen=True)
class Copies:
    """Costs of a tensor's complete copy into the accelerator's memory, and back into the host's."""

    there: Border = Border(0.0, 0.0)
    back: Border = Border(0.0, 0.0)


FREE = Copies()
"""All engines work in one memory."""


def family_ms(engine: Engine, families: Mapping[Engine, Engine], baseline_ms: Mapping[Engine, float]) -> float:
    """ms of the whole model on the fastest of those that ran it in the family of ``engine``; infinite if none did.

    ``families``: of the engines that differ from theirs.
    """
    family = families.get(engine, engine)
    return min((ms for one, ms in baseline_ms.items() if families.get(one, one) == family), default=math.inf)


@dataclass(frozen=True)
class CostModel:
    """Measured costs on one target, in ms.

    ``match_ms[i]`` is the cost of match ``i`` inside a region of its own engine, without borders; ``math.inf`` marks
    a match that cannot be used. ``borders`` has an entry for each engine with a usable match; for a rewritten match,
    that is the engine which compiles the piece. A border is the same wherever its engine runs: moving a
    tensor between memories comes on top, once for each tensor and memory, however many engines read it there.
    """

    match_ms: tuple[float, ...]
    borders: Mapping[Engine, Border]
    estimated: frozenset[int] = frozenset()
    """Matches whose cost was not measured."""
    families: Mapping[Engine, Engine] = field(default_factory=dict)
    """For engines whose pieces are compiled as another engine's, that engine: together they make one piece."""
    off_host: frozenset[Engine] = frozenset()
    """Engines that work in the accelerator's memory; the caller and all others work in the host's."""
    copies: Copies = FREE
    sessions: int = 1
    """Number of sessions that share the machine. Every cost is one session's time divided by it: its part of the
    machine."""

    def for_sessions(self, sessions: int) -> CostModel:
        """The costs if ``sessions`` share the machine, each as fast as a single one; for 1 the measured costs."""
        if sessions == self.sessions:
            return self
        factor = self.sessions / sessions
        return replace(
            self,
            match_ms=tuple(ms * factor for ms in self.match_ms),
            borders={engine: border.scaled(factor) for engine, border in self.borders.items()},
            copies=Copies(self.copies.there.scaled(factor), self.copies.back.scaled(factor)),
            sessions=sessions,
        )

    def usable(self, match: int) -> bool:
        """Whether match ``match`` has a cost and may be part of a placement."""
        return math.isfinite(self.match_ms[match])

    def side_ms(self, engine: Engine, nbytes: int) -> float:
        """Cost of a tensor of ``nbytes`` crossing the border of ``engine``, in or out."""
        return self.borders[bordering(engine)].ms(nbytes)

    def copy_ms(self, there: bool, nbytes: int) -> float:
        """Cost of bringing a tensor into the accelerator's memory, or back into the host's."""
        return (self.copies.there if there else self.copies.back).ms(nbytes)

    def family(self, engine: Engine) -> Engine:
        """The engine as which ``engine`` is compiled."""
        return self.families.get(engine, engine)

    def common_ms(self, engine: Engine, nbytes: int) -> float:
        """The part of a border's cost that all engines of its family pay; inside a piece of that family it is not
        due."""
        family = self.family(engine)
        return min(self.side_ms(other, nbytes) for other in self.borders if self.family(other) == family)

    def joint_ms(self, source: Engine, target: Engine, nbytes: int) -> float:
        """Cost of passing a tensor inside one piece, from one engine of its family to another."""
        if bordering(source) == bordering(target):
            return 0.0
        both = self.side_ms(source, nbytes) + self.side_ms(target, nbytes)
        return both - 2 * self.common_ms(source, nbytes)

    def crossing_ms(self, source: Engine | None, target: Engine | None, nbytes: int) -> float:
        """Cost of passing a tensor from one region to another. ``None`` is the caller's own buffer: free.

        Excludes the cost of a copy between memories.
        """
        leave = 0.0 if source is None else self.side_ms(source, nbytes)
        enter = 0.0 if target is None else self.side_ms(target, nbytes)
        return leave + enter


@dataclass(frozen=True)
class Flow:
    """One tensor that moves at run time: its bytes, its producer (-1: the caller) and its readers."""

    name: str
    nbytes: int
    producer: int
    consumers: NodeSet
    is_output: bool


def flows(graph: Graph) -> tuple[Flow, ...]:
    """Every graph input and every node output that is read or returned; constants do not move."""
    outputs = set(graph.outputs)
    producers = [(name, -1) for name in graph.inputs if name not in graph.constants]
    producers += [(name, node.index) for node in graph.nodes for name in node.outputs if name]
    read = {name: node_set(graph.consumers.get(name, ())) for name, _ in producers}
    returned = {name for name, producer in producers if producer >= 0 and name in outputs}
    return tuple(
        Flow(name, graph.tensors[name].nbytes, producer, read[name], name in returned)
        for name, producer in producers
        if read[name] or name in returned
    )


def predict(moving: Iterable[Flow], placement: Placement, cost: CostModel) -> float:
    """Predicted latency in ms: every match, every (tensor, consuming region) pair that crosses, and every copy.

    ``moving``: the :func:`flows` of the graph. A tensor from or to the caller crosses one border. ``math.inf`` when a
    match is unusable.
    """
    moving = tuple(moving)
    inner = sum(cost.match_ms[match] for region in placement.regions for match in region.matches)
    apart = inner + sum(crossing.ms(cost) for crossing in crossings(moving, placement))
    return apart + sum(copy.ms(cost) for copy in transfers(moving, placement, cost.off_host))


@dataclass(frozen=True)
class Crossing:
    """A tensor passed between engines (``None``: the caller), from one region to another or inside one."""

    nbytes: int
    source: Engine | None
    target: Engine | None
    inside: bool = False

    def ms(self, cost: CostModel) -> float:
        """Cost of the crossing."""
        if self.inside and self.source and self.target:
            return cost.joint_ms(self.source, self.target, self.nbytes)
        return cost.crossing_ms(self.source, self.target, self.nbytes)


def crossings(moving: Iterable[Flow], placement: Placement) -> Iterable[Crossing]:
    """Each border that a tensor crosses: once for each reading region, and once for each other engine in its own."""
    regions = placement.regions
    owner = {node: index for index, region in enumerate(regions) for node in members(region.nodes)}
    for flow in moving:
        home = owner[flow.producer] if flow.producer >= 0 else -1
        source = bordering(regions[home].engine_of(flow.producer)) if home >= 0 else None
        readers = {(owner[n], bordering(regions[owner[n]].engine_of(n))) for n in members(flow.consumers)}
        for index, engine in sorted(readers - {(home, source)}):
            yield Crossing(flow.nbytes, source, engine, inside=index == home)
        if flow.is_output:
            yield Crossing(flow.nbytes, source, None)


@dataclass(frozen=True)
class Transfer:
    """A tensor of ``nbytes`` that is copied into the accelerator's memory, or back into the host's."""

    nbytes: int
    there: bool

    def ms(self, cost: CostModel) -> float:
        """Cost of the copy."""
        return cost.copy_ms(self.there, self.nbytes)


def transfers(moving: Iterable[Flow], placement: Placement, off_host: Collection[Engine]) -> Iterable[Transfer]:
    """Each copy of a tensor into a memory where a region reads it, or the caller receives it, and none produces
    it."""
    if not off_host:
        return
    there = {n: region.engine_of(n) in off_host for region in placement.regions for n in members(region.nodes)}
    for flow in moving:
        home = flow.producer >= 0 and there[flow.producer]
        read = {there[node] for node in members(flow.consumers)}
        if flow.is_output:
            read.add(False)
        for away in read - {home}:
            yield Transfer(flow.nbytes, away)
