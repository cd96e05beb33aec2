"""The additive cost model: takes measured costs of matches and borders, gives predicted latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collage_evo.graph.ir import Graph, NodeSet, members, node_set
from collage_evo.patterns.match import Placement

Engine = tuple[str, str]
"""Backend and variant, as in :attr:`Match.engine`."""

BYTES_PER_MB = 1e6


@dataclass(frozen=True)
class Border:
    """What one side of a backend border costs (to enter or to leave one engine): ms, ms per 10^6 bytes."""

    fixed_ms: float
    ms_per_mb: float


@dataclass(frozen=True)
class CostModel:
    """Measured costs on one target, in ms.

    ``match_ms[i]`` is what match ``i`` costs inside a region of its own engine, borders left out;
    ``math.inf`` marks a match that cannot be used. ``borders`` has an entry for each engine with a usable match.
    """

    match_ms: tuple[float, ...]
    borders: Mapping[Engine, Border]
    estimated: frozenset[int] = frozenset()
    """Matches whose cost was not measured."""
    families: Mapping[Engine, Engine] = field(default_factory=dict)
    """Of engines whose pieces are compiled as another engine's, which one: together they make one piece."""

    def usable(self, match: int) -> bool:
        """Whether match ``match`` has a cost and may be part of a placement."""
        return math.isfinite(self.match_ms[match])

    def side_ms(self, engine: Engine, nbytes: int) -> float:
        """Cost of a tensor of ``nbytes`` crossing the border of ``engine``, in or out."""
        border = self.borders[engine]
        return border.fixed_ms + border.ms_per_mb * nbytes / BYTES_PER_MB

    def family(self, engine: Engine) -> Engine:
        """What ``engine`` is compiled as."""
        return self.families.get(engine, engine)

    def common_ms(self, engine: Engine, nbytes: int) -> float:
        """What of a border's cost all engines of its family pay; inside a piece of that family it is not due."""
        family = self.family(engine)
        return min(self.side_ms(other, nbytes) for other in self.borders if self.family(other) == family)

    def joint_ms(self, source: Engine, target: Engine, nbytes: int) -> float:
        """Cost of handing a tensor on inside one piece, from one engine of its family to another."""
        if source == target:
            return 0.0
        both = self.side_ms(source, nbytes) + self.side_ms(target, nbytes)
        return both - 2 * self.common_ms(source, nbytes)

    def crossing_ms(self, source: Engine | None, target: Engine | None, nbytes: int) -> float:
        """Cost of handing a tensor from one region to another. ``None`` is the caller's own buffer: free."""
        leave = 0.0 if source is None else self.side_ms(source, nbytes)
        enter = 0.0 if target is None else self.side_ms(target, nbytes)
        return leave + enter


@dataclass(frozen=True)
class Flow:
    """One tensor that moves at run time: its bytes, who makes it (-1: the caller) and who reads it."""

    name: str
    nbytes: int
    producer: int
    consumers: NodeSet
    is_output: bool


def flows(graph: Graph) -> tuple[Flow, ...]:
    """Every graph input and every node output that is read or returned; constants do not move."""
    outputs = set(graph.outputs)
    made = [(name, -1) for name in graph.inputs if name not in graph.constants]
    made += [(name, node.index) for node in graph.nodes for name in node.outputs if name]
    result = []
    for name, producer in made:
        readers = node_set(graph.consumers.get(name, ()))
        returned = name in outputs and producer >= 0
        if readers or returned:
            result.append(Flow(name, graph.tensors[name].nbytes, producer, readers, returned))
    return tuple(result)


def predict(graph: Graph, placement: Placement, cost: CostModel) -> float:
    """Predicted latency in ms: every match, and every (tensor, consuming region) pair that crosses.

    A tensor the caller hands in, or gets back, crosses one border. ``math.inf`` when a match is unusable.
    """
    return predict_flows(flows(graph), placement, cost)


def predict_flows(moving: Iterable[Flow], placement: Placement, cost: CostModel) -> float:
    """:func:`predict` for a graph whose :func:`flows` are at hand."""
    inner = sum(cost.match_ms[match] for region in placement.regions for match in region.matches)
    return inner + sum(crossing.ms(cost) for crossing in crossings(moving, placement))


@dataclass(frozen=True)
class Crossing:
    """A tensor handed on between engines (``None``: the caller), from one region to another or inside one."""

    nbytes: int
    source: Engine | None
    target: Engine | None
    inside: bool = False

    def ms(self, cost: CostModel) -> float:
        """What it costs."""
        if self.inside and self.source and self.target:
            return cost.joint_ms(self.source, self.target, self.nbytes)
        return cost.crossing_ms(self.source, self.target, self.nbytes)


def crossings(moving: Iterable[Flow], placement: Placement) -> Iterable[Crossing]:
    """Each border that a tensor crosses: for each other region that reads it, or its own, once an engine in there."""
    regions = placement.regions
    owner = {node: index for index, region in enumerate(regions) for node in members(region.nodes)}
    for flow in moving:
        home = owner[flow.producer] if flow.producer >= 0 else -1
        source = regions[home].engine_of(flow.producer) if home >= 0 else None
        readers = {(owner[node], regions[owner[node]].engine_of(node)) for node in members(flow.consumers)}
        for index, engine in sorted(readers - {(home, source)}):
            yield Crossing(flow.nbytes, source, engine, inside=index == home)
        if flow.is_output:
            yield Crossing(flow.nbytes, source, None)
