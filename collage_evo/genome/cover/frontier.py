"""The dynamic program's view of a search space: nodes renumbered so that few tensors are live at once,
matches and tensors as bitmasks over that order, priced by :mod:`collage_evo.genome.cover.bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from collage_evo.fitness.costs.model import CostModel, Engine, Flow, bordering
from collage_evo.genome.cover.bounds import Offer, Prices, solve_prices
from collage_evo.genome.cover.movement import Tariff
from collage_evo.graph.ir import Graph, NodeSet, members

if TYPE_CHECKING:
    from collage_evo.genome.space import SearchSpace


@dataclass(frozen=True)
class Option:
    """One match in renumbered form. ``reads`` and ``makes`` are tensor indices, ``cost`` in ms with the
    borders of returned outputs included, ``price`` its share of the lower bound."""

    match: int
    nodes: NodeSet
    before: NodeSet
    engine: int
    cost: float
    price: float
    reads: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True)
class LiveTensor:
    """A tensor between engines: who reads it, and what moving it costs.

    ``sides`` is what one border costs, by engine, and ``common`` what of it engines of one family save where they
    meet (0 for an engine that has none beside it), ``copies`` what bringing it to the device and back costs (empty
    where all engines work in the host's memory); ``made`` is False for what the caller hands in.
    """

    readers: NodeSet
    tariff: Tariff
    sides: tuple[float, ...]
    common: tuple[float, ...]
    copies: tuple[float, ...]
    made: bool


class Frontier:
    """A search space renumbered for the dynamic program."""

    def __init__(self, space: SearchSpace, match_ms: tuple[float, ...], allowed: Iterable[int]) -> None:
        graph = space.graph
        self.size = len(graph.nodes)
        self.order = narrow_order(graph)
        self.rank = [0] * self.size
        for rank, node in enumerate(self.order):
            self.rank[node] = rank
        self.engines = space.engines
        self.families = [space.cost.family(engine) for engine in self.engines]
        there = set(map(bordering, space.cost.on_device))
        self.on_device = [engine in there for engine in self.engines]
        self.tensors: list[LiveTensor] = []
        self.inputs: list[int] = []
        self.options: list[list[Option]] = [[] for _ in graph.nodes]
        self.engines_of = [0] * self.size
        reads, makes = self._add_tensors(space)
        offers = self._offers(space, match_ms, sorted(set(allowed) & set(space.usable)), reads, makes)
        self.prices: Prices = solve_prices(self.size, self.tensors, offers, self.families, self.on_device)
        for offer, paid in zip(offers, self.prices.paid(offers), strict=True):
            own = {tensor for tensor, _ in offer.makes}
            option = Option(
                match=offer.match,
                nodes=offer.nodes,
                before=self.renumber(space.before[offer.match]),
                engine=offer.engine,
                cost=offer.cost,
                price=paid,
                reads=tuple(sorted({tensor for tensor, _ in offer.reads})),
                makes=tuple(sorted(own)),
            )
            for rank in members(offer.nodes):
                self.options[rank].append(option)
                self.engines_of[rank] |= 1 << offer.engine

    def _add_tensors(self, space: SearchSpace) -> tuple[list[list[int]], list[list[int]]]:
        """Fill in the tensors that have readers; for each rank, those it reads and those it makes."""
        reads: list[list[int]] = [[] for _ in range(self.size)]
        makes: list[list[int]] = [[] for _ in range(self.size)]
        charges = cache(partial(self._charges, space.cost))  # most tensors are as large as another
        for flow in space.flows:
            if not flow.consumers:
                continue
            index = len(self.tensors)
            self.tensors.append(self._live(space.cost, flow, *charges(flow.nbytes)))
            if flow.producer < 0:
                self.inputs.append(index)
            else:
                makes[self.rank[flow.producer]].append(index)
            for node in members(flow.consumers):
                reads[self.rank[node]].append(index)
        return reads, makes

    def _charges(self, cost: CostModel, nbytes: int) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]:
        """``charge`` and ``common`` of tensors of so many bytes."""
        charge = tuple(
            tuple(_charge(cost, source, engine, nbytes) for engine in self.engines)
            for source in (*self.engines, None)
        )
        common = tuple(
            cost.common_ms(engine, nbytes) if self.families.count(family) > 1 else 0.0
            for engine, family in zip(self.engines, self.families, strict=True)
        )
        return charge, common

    def _live(
        self, cost: CostModel, flow: Flow, charge: tuple[tuple[float, ...], ...], common: tuple[float, ...]
    ) -> LiveTensor:
        engines = len(self.engines)
        copies: tuple[float, ...] = ()
        copy: tuple[float, ...] = ()
        holds = [*(1 << engine for engine in range(engines)), 0]
        if any(self.on_device):
            # The host's memory, then the device's. What is returned comes to the host whoever reads it there.
            to_host = 0.0 if flow.is_output else cost.copy_ms(False, flow.nbytes)
            to_device = cost.copy_ms(True, flow.nbytes)
            copies, copy = (to_device, to_host), (to_host, to_device)
            for engine, there in enumerate([*self.on_device, False]):
                holds[engine] |= 1 << engines + there | flow.is_output << engines
        tariff = Tariff(charge, tuple(holds), copy)
        return LiveTensor(
            self.renumber(flow.consumers), tariff, charge[-1], common, copies, made=flow.producer >= 0
        )

    def _offers(
        self,
        space: SearchSpace,
        match_ms: tuple[float, ...],
        usable: list[int],
        reads: list[list[int]],
        makes: list[list[int]],
    ) -> list[Offer]:
        returned = [0.0] * len(self.engines) * self.size
        for flow in space.flows:
            if flow.is_output:
                for index, engine in enumerate(self.engines):
                    leave = space.cost.crossing_ms(engine, None, flow.nbytes)
                    leave += space.cost.copy_ms(False, flow.nbytes) if self.on_device[index] else 0.0
                    returned[self.rank[flow.producer] * len(self.engines) + index] += leave
        index_of = {engine: index for index, engine in enumerate(self.engines)}
        offers = []
        for match in usable:
            nodes = self.renumber(space.matches[match].nodes)
            own_engine = index_of[bordering(space.matches[match].engine)]
            ranks = list(members(nodes))
            own = {tensor for rank in ranks for tensor in makes[rank]}
            offers.append(
                Offer(
                    match=match,
                    nodes=nodes,
                    engine=own_engine,
                    cost=match_ms[match] + sum(returned[r * len(self.engines) + own_engine] for r in ranks),
                    reads=tuple((t, rank) for rank in ranks for t in reads[rank] if t not in own),
                    makes=tuple(
                        (t, r) for t in sorted(own) for r in members(self.tensors[t].readers & ~nodes)
                    ),
                )
            )
        return offers

    def renumber(self, nodes: NodeSet) -> NodeSet:
        """A set of graph nodes in the program's order."""
        result = 0
        for node in members(nodes):
            result |= 1 << self.rank[node]
        return result

    def engines_reading(self, tensor: int, covered: NodeSet) -> tuple[int, int]:
        """Engines that may still read ``tensor``, as a bitmask, and how many readers are left."""
        left = self.tensors[tensor].readers & ~covered
        engines = 0
        for rank in members(left):
            engines |= self.engines_of[rank]
        return engines, left.bit_count()


def _charge(cost: CostModel, source: Engine | None, target: Engine, nbytes: int) -> float:
    """What a tensor's borders cost on its way; engines of one family are taken to share a piece."""
    if source is not None and source != target and cost.family(source) == cost.family(target):
        return cost.joint_ms(source, target, nbytes)
    return cost.crossing_ms(source, target, nbytes)


def narrow_order(graph: Graph) -> list[int]:
    """A topological order in which few tensors are live at a time (greedy: free most, then newest first)."""
    left = {name: len(graph.consumers.get(name, ())) for node in graph.nodes for name in node.outputs}
    waits = [mask.bit_count() for mask in graph.pred]
    ready = {index: 0 for index, count in enumerate(waits) if not count}
    order: list[int] = []
    clock = 0

    def growth(index: int) -> int:
        node = graph.nodes[index]
        opened = sum(1 for name in node.outputs if graph.consumers.get(name))
        closed = sum(1 for name in set(node.inputs) if left.get(name) == 1)
        return opened - closed

    while ready:
        best = min(ready, key=lambda index: (growth(index), -ready[index], index))
        del ready[best]
        order.append(best)
        clock += 1
        for name in set(graph.nodes[best].inputs):
            if name in left:
                left[name] -= 1
        for after in members(graph.succ[best]):
            waits[after] -= 1
            if not waits[after]:
                ready[after] = clock
    return order
