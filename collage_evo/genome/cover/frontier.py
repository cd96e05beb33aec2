"""Frontier: a search space renumbered for the dynamic program, so that few tensors are live at once.

Matches and tensors are bitmasks over that order, priced by :mod:`collage_evo.genome.cover.bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from collage_evo.genome.cost_model import CostModel, Engine, Flow, bordering
from collage_evo.genome.cover.bounds import Prices, solve_prices
from collage_evo.genome.cover.movement import LiveTensor, Tariff
from collage_evo.genome.layout import Laid
from collage_evo.graph.ir.graph import NodeSet, members, union

if TYPE_CHECKING:
    from collage_evo.genome.space import SearchSpace


@dataclass(frozen=True)
class Option:
    """One match in renumbered form: ``cost`` in ms with the borders of returned outputs included, ``price`` its share
    of the lower bound."""

    match: int
    laid: Laid
    engine: int
    cost: float
    price: float


class Frontier:
    """A search space renumbered for the dynamic program."""

    def __init__(self, space: SearchSpace, match_ms: tuple[float, ...], allowed: Iterable[int]) -> None:
        self._layout = space.layout
        self.size = len(space.graph.nodes)
        self.engines = space.engines
        self.families = [space.cost.family(engine) for engine in self.engines]
        there = set(map(bordering, space.cost.off_host))
        self.off_host = [engine in there for engine in self.engines]
        self.tensors: list[LiveTensor] = []
        self.inputs: list[int] = []
        self.options: list[list[Option]] = [[] for _ in range(self.size)]
        self.engines_of = [0] * self.size
        self._add_tensors(space)
        usable = sorted(set(allowed) & set(space.usable))
        offers = self._offers(space, match_ms, usable)
        self.prices: Prices = solve_prices(self.size, self.tensors, offers, self.families, self.off_host)
        for match, (laid, engine, cost) in zip(usable, offers, strict=True):
            option = Option(match, laid, engine, cost, self.prices.paid(laid.nodes))
            for rank in members(laid.nodes):
                self.options[rank].append(option)
                self.engines_of[rank] |= 1 << engine

    def _add_tensors(self, space: SearchSpace) -> None:
        """Fill in the tensors that have readers."""
        charges = cache(partial(self._charges, space.cost))  # most tensors are as large as another
        for index, (flow, readers) in enumerate(zip(self._layout.flows, self._layout.readers, strict=True)):
            self.tensors.append(self._live(space.cost, flow, readers, *charges(flow.nbytes)))
            if flow.producer < 0:
                self.inputs.append(index)

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
        self,
        cost: CostModel,
        flow: Flow,
        readers: NodeSet,
        charge: tuple[tuple[float, ...], ...],
        common: tuple[float, ...],
    ) -> LiveTensor:
        engines = len(self.engines)
        copy: tuple[float, ...] = ()
        holds = [*(1 << engine for engine in range(engines)), 0]
        if any(self.off_host):
            # A returned tensor moves to the host whatever engine reads it there.
            copy_back = 0.0 if flow.is_output else cost.copy_ms(False, flow.nbytes)
            copy = (copy_back, cost.copy_ms(True, flow.nbytes))
            for engine, there in enumerate([*self.off_host, False]):
                holds[engine] |= 1 << engines + there | flow.is_output << engines
        tariff = Tariff(charge, tuple(holds), copy)
        return LiveTensor(readers, tariff, common, made=flow.producer >= 0)

    def _offers(
        self, space: SearchSpace, match_ms: tuple[float, ...], usable: list[int]
    ) -> list[tuple[Laid, int, float]]:
        engines, rank = len(self.engines), self._layout.rank
        returned = [0.0] * engines * self.size
        for flow in space.flows:
            if flow.is_output:
                for index, source in enumerate(self.engines):
                    leave = space.cost.crossing_ms(source, None, flow.nbytes)
                    leave += space.cost.copy_ms(False, flow.nbytes) if self.off_host[index] else 0.0
                    returned[rank[flow.producer] * engines + index] += leave
        offers = []
        for match in usable:
            laid, engine = self._layout.laid(match), space.engine_of[match]
            cost = match_ms[match] + sum(returned[r * engines + engine] for r in members(laid.nodes))
            offers.append((laid, engine, cost))
        return offers

    def engines_reading(self, tensor: int, covered: NodeSet) -> tuple[int, int]:
        """Engines that may still read ``tensor``, as a bitmask, and the number of remaining readers."""
        left = self.tensors[tensor].readers & ~covered
        return union(map(self.engines_of.__getitem__, members(left))), left.bit_count()


def _charge(cost: CostModel, source: Engine | None, target: Engine, nbytes: int) -> float:
    """Border cost of a tensor on its way; engines of one family are assumed to share a piece."""
    if source is not None and source != target and cost.family(source) == cost.family(target):
        return cost.joint_ms(source, target, nbytes)
    return cost.crossing_ms(source, target, nbytes)
