"""Known costs of one graph's matches: records that each stage of their measurement extends."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.costs.borders import WholeModel, border_ms, inner_ms
from collage_evo.costs.matches import CostTable
from collage_evo.costs.profiles import NodeMs
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.genome.cost_model import FREE, Border, Copies, CostModel, Engine, bordering
from collage_evo.genome.failure import Failure
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match
from collage_evo.policy import DEFAULT_POLICY, Policy


@dataclass(frozen=True)
class CostScope:
    """Matches whose costs are to be measured, and what is known of their engines before.

    Attributes:
        refusals: why backends do not run a node.
        off_host: engines that work in an accelerator's memory, and what ``copies`` there and back cost.
        baseline_ms: ms of the whole model on engines that ran it.
        policy: how many border probes there are, and what borders are expected to cost.
        measured: latencies of placements that were measured before, apportioned to their matches; the space contains
            these whatever else is known of them.
    """

    graph: Graph
    matches: tuple[Match, ...]
    backends: Mapping[str, Backend]
    refusals: Mapping[int, Mapping[str, str]]
    off_host: frozenset[Engine] = frozenset()
    copies: Copies = FREE
    baseline_ms: Mapping[Engine, float] = field(default_factory=dict)
    policy: Policy = DEFAULT_POLICY
    measured: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def families(self) -> dict[Engine, Engine]:
        """Families of engines that differ from theirs."""
        return {match.engine: match.family for match in self.matches if match.family != match.engine}

    @cached_property
    def engines(self) -> frozenset[Engine]:
        return frozenset(match.engine for match in self.matches)

    @cached_property
    def measured_engines(self) -> frozenset[Engine]:
        return frozenset(self.matches[index].engine for index in self.measured)

    @cached_property
    def dependents(self) -> list[int]:
        """Matches of backends that stand on others."""
        return [i for i, match in enumerate(self.matches) if match.backend in self._stacked]

    @cached_property
    def plain(self) -> dict[Engine, list[int]]:
        """All other matches without rewrites, by engine."""
        plain = ((index, match) for index, match in enumerate(self.matches) if not match.rewrites)
        return multimap((match.engine, index) for index, match in plain if match.backend not in self._stacked)

    @cached_property
    def _stacked(self) -> set[str]:
        return {name for name, backend in self.backends.items() if isinstance(backend, StandsOnOthers)}


@dataclass(frozen=True)
class ProfiledCosts:
    """Times of nodes on an engine; the times of all nodes of each of ``pieces`` together include its borders."""

    pieces: tuple[NodeSet, ...]
    ms: NodeMs


@dataclass(frozen=True)
class FittedBorders:
    """Cost of one side of a border by engine.

    Attributes:
        sides: of families, and what engines add to that of theirs, of which ``borders`` are the sums.
        whole_models: engines that run the whole model, with the borders that they have there.
    """

    borders: Mapping[Engine, Border] = field(default_factory=dict)
    sides: Mapping[Engine, Border] = field(default_factory=dict)
    whole_models: Mapping[Engine, WholeModel] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownCosts:
    """Costs of the matches of ``scope``, as far as they are known.

    Attributes:
        profiles: times of nodes, by engine.
        late: engines inside families for whose profiles there was no time. They take no part: timed standalone, their
            kernels would look cheaper than the profiled ones, although the family runs the same kernels.
        expected: nodes of engines whose times are estimates.
        standalone_ms: standalone times, by match.
        failures: why matches have none.
    """

    scope: CostScope
    profiles: Mapping[Engine, tuple[ProfiledCosts, ...]] = field(default_factory=dict)
    late: frozenset[Engine] = frozenset()
    expected: Mapping[Engine, frozenset[int]] = field(default_factory=dict)
    standalone_ms: Mapping[int, float] = field(default_factory=dict)
    failures: Mapping[int, Failure] = field(default_factory=dict)
    fitted: FittedBorders = FittedBorders()

    @cached_property
    def whole_ms(self) -> dict[Engine, float]:
        """Latency of all of the model on engines that support all of it, so far as is known."""
        profiled = {engine: sum(self.profiles[engine][0].ms.values()) for engine in self._fully_profiled}
        return {**self.scope.baseline_ms, **profiled}

    @cached_property
    def shape(self) -> Sequence[float]:
        """Node times on the fastest engine whose profile covers all of them; a guess where none does."""
        graph = self.scope.graph
        if not self._fully_profiled:
            return guessed_ms(graph)
        ms = self.profiles[min(self._fully_profiled, key=lambda engine: (self.whole_ms[engine], engine))][0].ms
        return [ms[node] for node in range(len(graph.nodes))]

    @property
    def _fully_profiled(self) -> list[Engine]:
        """Engines with one profile, of all nodes."""
        count = len(self.scope.graph.nodes)
        return [one for one, parts in self.profiles.items() if len(parts) == 1 and len(parts[0].ms) == count]

    def node_ms(self, engine: Engine) -> dict[int, float]:
        """Node times on ``engine``, without borders where these are known."""
        node_ms: dict[int, float] = {}
        fitted, graph = self.fitted, self.scope.graph
        for costs in self.profiles.get(engine, ()):
            node_ms |= costs.ms
            for piece in costs.pieces:
                ms, share = sum(costs.ms[node] for node in members(piece)), 1.0
                if engine in fitted.whole_models:
                    share = fitted.whole_models[engine].share(fitted.sides)
                elif ms and engine in fitted.borders:
                    share = inner_ms(graph, piece, ms, fitted.borders[engine]) / ms
                node_ms |= {node: share * costs.ms[node] for node in members(piece)}
        return node_ms

    def summed(self, match: Match, node_ms: Mapping[Engine, Mapping[int, float]]) -> float | None:
        """Sum of the times of ``match``'s nodes; None where some are not known in it."""
        of_engine = node_ms.get(match.engine, {})
        if match.rewrites:  # nodes outside the site are unchanged
            ((_, site),) = match.rewrites
            if not all(node in of_engine for node in members(site)):
                return None
            of_engine = {**node_ms.get(bordering(match.engine), {}), **of_engine}
        nodes = list(members(match.nodes))
        return sum(of_engine[node] for node in nodes) if all(node in of_engine for node in nodes) else None

    def space(self) -> SearchSpace:
        """The search space as far as costs are known."""
        scope = self.scope
        node_ms = {engine: self.node_ms(engine) for engine in self.profiles}
        failed = multimap((scope.matches[index].engine, scope.matches[index].nodes) for index in self.failures)
        inner = [self._inner_ms(index, node_ms, failed) for index in range(len(scope.matches))]
        apportioned = [index for index in scope.measured if math.isinf(inner[index])]
        for index in apportioned:
            inner[index] = scope.measured[index]
        borders = self.fitted.borders
        estimated = self._estimated(inner).union(apportioned)
        cost = CostModel(tuple(inner), borders, estimated, scope.families, scope.off_host, scope.copies)
        return SearchSpace(scope.graph, scope.matches, cost, self._reasons())

    def _inner_ms(
        self, index: int, node_ms: Mapping[Engine, Mapping[int, float]], failed: Mapping[Engine, Collection[NodeSet]]
    ) -> float:
        """Cost of match ``index`` without borders; infinite where that is not known, or a part of it failed."""
        match = self.scope.matches[index]
        if any(not nodes & ~match.nodes for nodes in failed.get(match.engine, ())):
            return math.inf
        if (summed := self.summed(match, node_ms)) is not None:
            return summed
        # An earlier run may have timed kernels standalone for an engine that is excluded here.
        ms = None if bordering(match.engine) in self.late else self.standalone_ms.get(index)
        if ms is None:
            return math.inf
        return inner_ms(self.scope.graph, match.nodes, ms, self.fitted.borders[bordering(match.engine)])

    def _estimated(self, inner: Sequence[float]) -> frozenset[int]:
        """Matches whose costs come neither from a measurement nor from a profile."""
        return frozenset(
            index
            for index, match in enumerate(self.scope.matches)
            if math.isfinite(inner[index]) and index not in self.standalone_ms
            if any(node in self.expected.get(match.engine, ()) for node in members(match.nodes))
        )

    def _reasons(self) -> dict[int, dict[str, str]]:
        """Why nodes have no match: refusals of backends, and failures to build or time."""
        reasons = {node: dict(refused) for node, refused in self.scope.refusals.items()}
        for index, failure in self.failures.items():
            match = self.scope.matches[index]
            for node in members(match.nodes):
                reasons.setdefault(node, {}).setdefault(match.backend, f"accepted, but failed ({failure})")
        return reasons

    def table(self) -> CostTable:
        """Standalone costs: as measured standalone, else including the match's borders."""
        scope, space = self.scope, self.space()
        ms = list(space.cost.match_ms)
        for index, match in enumerate(scope.matches):
            border = border_ms(scope.graph, match.nodes, self.fitted.borders[bordering(match.engine)])
            ms[index] = self.standalone_ms.get(index, ms[index] + border)
        return CostTable(tuple(ms), self.failures)
