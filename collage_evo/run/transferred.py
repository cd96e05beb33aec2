"""Transfer from an earlier run to another graph: its costs, sensitivities and front.

Operators are paired (``graph/ir/align.py``); knowledge about one applies to its pair. A match without a counterpart
costs what the earlier run shows for its engine's operators, scaled by the amount of work. If an operator has no pair,
or none of the matches is left that ran it, the cheapest match of the same engine, family or backend covers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.matches import CostTable
from collage_evo.costs.saved_costs import MeasuredCosts
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.errors import NotSearchable
from collage_evo.genome.cost_model import CostModel, Engine, bordering
from collage_evo.genome.encoding import decode
from collage_evo.genome.genome import Genome
from collage_evo.genome.outcome import Terms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.align import same_nodes
from collage_evo.graph.ir.graph import Graph, NodeSet, members, node_set
from collage_evo.graph.prepare import SearchableModel
from collage_evo.patterns.match import Match, Placement
from collage_evo.precision.transforms.edits import edits_of
from collage_evo.report.result import FrontPoint
from collage_evo.run.context import RunContext
from collage_evo.run.objectives import SHARES, Sensitivities
from collage_evo.run.recorded import RecordedRun
from collage_evo.run.warm_start import WarmStart
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.seeds import Seeds


@dataclass(frozen=True)
class TransferredCosts:
    """Knowledge of an earlier run about the operators of ``graph``; ``nodes`` pairs them with that run's."""

    run: RecordedRun
    graph: Graph
    nodes: Mapping[int, int]

    @classmethod
    def of(cls, run: RecordedRun, graph: Graph) -> TransferredCosts:
        """Pair the operators of both graphs."""
        return cls(run, graph, same_nodes(graph, run.graph))

    def in_pairs(self, match: Match) -> Match | None:
        """The counterpart of ``match`` there; None if one of its operators has no pair."""
        if any(node not in self.nodes for node in members(match.nodes)):
            return None
        edits = edits_of(*((name, self._there(nodes)) for name, nodes in match.edits))
        return replace(match, nodes=self._there(match.nodes), edits=edits)

    def _there(self, nodes: NodeSet) -> NodeSet:
        return node_set(self.nodes[node] for node in members(nodes))

    @property
    def sensitivities(self) -> Sensitivities | None:
        """Sensitivities of operators here; unpaired ones get the average. None if the other run measured none."""
        before = self.run.store.get(SHARES)
        if before is None:
            return None
        count, moved = len(self.graph.nodes), {}
        for kind, sensitivities in before.items():
            usual = sum(sensitivities) / max(1, len(sensitivities))
            moved[kind] = tuple(sensitivities[self.nodes[n]] if n in self.nodes else usual for n in range(count))
        return moved

    def costs(self, run: RunContext, offered: Matches, terms: Terms) -> MeasuredCosts | None:
        """The other run's costs of the matches here; logs how much was transferred.

        None if they are of another target or leave an operator without any.
        """
        costs, text = None, "with their costs"
        if {baseline.target for baseline in self.run.baselines} != {run.setting.target.digest}:
            text = "but costs are measured anew: those are of another machine or number of threads"
        else:
            try:
                costs = self._costs(offered.matches, terms)
            except NotSearchable:
                text = "but costs are measured anew: those leave some operator without any"
            else:
                text = f"{text}; of {len(offered.matches)} ways to run parts, {costs.cache_hits} were measured there"
        paired, count = len(self.nodes), len(self.graph.nodes)
        run.reporter.log(f"{paired} of {count} operators carry over from {self.run.directory}, {text}")
        return costs

    def _costs(self, matches: Sequence[Match], terms: Terms) -> MeasuredCosts:
        """The other run's costs for ``matches``, scaled by the amount of work for operators of another size."""
        costs, costs_of_other = self.run.costs, _Known(self)
        costs_ms = [costs_of_other.ms(match) for match in matches]
        guessed = frozenset(index for index, (_, certain) in enumerate(costs_ms) if not certain)
        before = costs.space.cost
        borders = {**before.borders}
        cheap = min(borders.values(), key=lambda border: border.ms(10**6))
        borders |= {e: cheap for e in {bordering(match.engine) for match in matches} - borders.keys()}
        families = {match.engine: match.family for match in matches if match.family != match.engine}
        ms = tuple(ms for ms, _ in costs_ms)
        cost = CostModel(ms, borders, guessed, families, before.off_host, before.copies)
        space = SearchSpace(self.graph, tuple(matches), cost, {}, terms)
        return MeasuredCosts(CostTable(ms, {}), space, 0, 0, len(matches) - len(guessed))

    def seeds(self, space: SearchSpace, others: Seeds) -> Seeds:
        """The other run's answer and front in ``space``, then ``others``."""
        after = ((kind, decode(genome, space)) for kind, genome in others)
        return Seeds(space, chain(self._placements(space), after), near=0)

    def _placements(self, space: SearchSpace) -> Iterator[tuple[Origin, Placement]]:
        move = _Move(self, space)
        for point in in_turn([point for point in self.run.result.front if point.key in self.run.evaluated]):
            yield Origin(Way.TRANSFERRED), decode(move.genome(self.run.evaluated[point.key].genome), space)


@dataclass(frozen=True)
class Transfer:
    """What an earlier run knows about this graph; None if this run does not begin with another one's answer."""

    known: TransferredCosts | None


def transfer(warm: WarmStart, model: SearchableModel) -> Transfer:
    return Transfer(TransferredCosts.of(warm.earlier, model.graph) if warm.earlier else None)


def in_turn(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """The answer, its rivals in the race, then the front: those within the budget, the fastest first, and then the
    next ones."""

    def turn(point: FrontPoint) -> tuple[bool, bool, bool, bool, float]:
        nearer = point.latency_ms if point.feasible else -point.latency_ms
        return not point.answer, not point.raced, not point.pareto, not point.feasible, nearer

    return sorted(points, key=turn)


class _Known:
    """Costs in ms of this graph's matches by the earlier run."""

    def __init__(self, transferred: TransferredCosts) -> None:
        self._transferred = transferred
        self._here, self._there = guessed_ms(transferred.graph), guessed_ms(transferred.run.graph)
        space = transferred.run.space
        self._ms = {match: ms for match, ms in zip(space.matches, space.cost.match_ms, strict=True)}
        self._certain = {match for i, match in enumerate(space.matches) if i not in space.cost.estimated}

    def ms(self, match: Match) -> tuple[float, bool]:
        """Cost of ``match``, and whether it was measured on operators of the same sizes."""
        before = self._transferred.in_pairs(match)
        if before is None or before not in self._ms:
            return self._by_nodes(match), False
        work = sum(self._here[node] for node in members(match.nodes))
        more = work / sum(self._there[node] for node in members(before.nodes))
        return self._ms[before] * more, before in self._certain and math.isclose(more, 1.0)

    def _by_nodes(self, match: Match) -> float:
        """Sum of the engine's times for its operators; infinite if none of them is known."""
        if (usual := self._slowness.get(match.engine)) is None:
            return math.inf
        slowness = self._node_slowness.get(match.engine, {})
        nodes = self._transferred.nodes
        return sum(self._here[n] * slowness.get(nodes.get(n, -1), usual) for n in members(match.nodes))

    @cached_property
    def _node_slowness(self) -> dict[Engine, dict[int, float]]:
        """Slowness by engine and node of the earlier run: time of the smallest match with the node over its guess."""
        slowness_of: dict[Engine, dict[int, float]] = {}
        for match in sorted(self._ms, key=lambda match: -match.nodes.bit_count()):
            if math.isfinite(self._ms[match]):
                slowness = self._ms[match] / sum(self._there[node] for node in members(match.nodes))
                slowness_of.setdefault(match.engine, {}).update(dict.fromkeys(members(match.nodes), slowness))
        return slowness_of

    @cached_property
    def _slowness(self) -> dict[Engine, float]:
        """The same for all nodes of an engine together."""
        return {
            engine: sum(of_nodes[n] * self._there[n] for n in of_nodes) / sum(self._there[n] for n in of_nodes)
            for engine, of_nodes in self._node_slowness.items()
        }


class _Move:
    """Moves genomes of the earlier run into this one's space."""

    def __init__(self, transferred: TransferredCosts, space: SearchSpace) -> None:
        self._transferred, self._space = transferred, space
        self._here = {transferred.in_pairs(space.matches[match]): match for match in space.usable}
        """This space's matches by what they were there."""

    def genome(self, genome: Genome) -> Genome:
        """The genome here that is the nearest to ``genome``."""
        space, before, nodes = self._space, self._transferred.run.space, self._transferred.nodes
        owner: dict[int, int] = {}
        ran: dict[int, Match] = {}
        placement = decode(genome, before)
        for position, region in enumerate(placement.regions):
            for match_before in (before.matches[index] for index in region.matches):
                owner |= dict.fromkeys(members(match_before.nodes), position)
                ran |= dict.fromkeys(members(match_before.nodes), match_before)
        choices, last = [], placement.regions[0].family
        for node, options in enumerate(space.candidates):
            match = ran.get(nodes.get(node, -1))
            chosen = self._here.get(match) if match is not None else None
            if chosen is None:
                chosen = self._nearest(options, match.engine if match else last)
            last = space.matches[chosen].engine
            choices.append(options.index(chosen))
        families = [region.family for region in placement.regions]

        def merges(i: int, j: int) -> bool:
            one, other = (owner.get(nodes.get(node, -1), -1) for node in (i, j))
            return min(one, other) < 0 or one == other or families[one] != families[other]

        return Genome(tuple(choices), tuple(int(merges(*edge)) for edge in space.edges))

    def _nearest(self, options: Sequence[int], engine: Engine) -> int:
        """The cheapest of ``options`` that is of ``engine``, of its family, of its backend, or any."""
        family = self._transferred.run.space.cost.family(engine)

        def order(index: int) -> tuple[bool, bool, bool, float]:
            match = self._space.matches[index]
            apart = match.engine != engine, match.family != family, match.backend != engine[0]
            return *apart, self._space.ms_per_node(index)

        return min(options, key=order)
