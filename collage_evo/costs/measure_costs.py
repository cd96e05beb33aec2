"""Cost measurement of one graph's matches, and the search space with these costs.

Libraries with a profiler report the times of their kernels while they run the whole model, in each of their variants
(``costs/profiles.py``). Kernels of the others are timed standalone, the most expensive first, and scaled to the whole
model's latency there (``costs/unprofiled.py``). Then border probes, random cuts of the model between engines, are
measured as whole models: their time beyond their kernels is the price of borders. Regions that stand on other
backends, and rewrites that no profile covers, are timed standalone as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from random import Random
from types import MappingProxyType

from collage_evo.backends.base import Backend
from collage_evo.backends.capabilities import StandsOnOthers
from collage_evo.costs.border_probes import random_probes, sample_of, sides_of, whole_on
from collage_evo.costs.borders import BorderSample, WholeModel, border_ms, fit_borders, inner_ms
from collage_evo.costs.dependent_costs import measure_dependents
from collage_evo.costs.matches import CostMeter, Costs, CostTable
from collage_evo.costs.profiles import NodeMs, ProfileRequest, node_ms, to_profile
from collage_evo.costs.unprofiled import guessed_ms, kernel_sets, spread
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.measure.jobs import KernelTimes
from collage_evo.patterns.match import Match, Placement
from collage_evo.placement.cost_model import FREE, Border, Copies, CostModel, Engine, bordering
from collage_evo.placement.failure import Failure
from collage_evo.placement.outcome import Outcome
from collage_evo.placement.space import SearchSpace
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.precision.transforms.edits import within

MOST_CUT = 4
"""Engines between which border probes cut the model: the parts of each have to be compiled. Borders of others have
their prior cost."""
MOST_FAMILIES = 2
"""Families inside which the model is cut: between float32 and int8, for example."""
PROBES_TOGETHER = 4
"""Border probes that are compiled together."""
MORE_SECONDS = 0.6
"""Additional time for regions of backends that stand on others, if there are any, as a share of that for costs."""

OnDone = Callable[[int], None]
Profiled = tuple[ProfileRequest, KernelTimes | Failure]
Profiler = Callable[[Sequence[ProfileRequest], Callable[[], bool]], Iterable[Profiled]]
"""Profiles regions, in order, until the callback returns that the time is over."""
MeasureWholeModels = Callable[[Sequence[Placement]], Sequence[Outcome | None]]
"""Measures placements of the whole model."""


@dataclass(frozen=True)
class ProfiledCosts:
    """Times of nodes on an engine; the times of all nodes of each of ``pieces`` together include its borders."""

    pieces: tuple[NodeSet, ...]
    ms: NodeMs


class CostMeasurement:
    """Costs of one graph's matches, as far as they are known.

    Call ``profile``, ``time_standalone``, ``cut``, then ``time_dependents``; ``space`` is valid at any time.
    """

    def __init__(
        self,
        meter: CostMeter,
        matches: Sequence[Match],
        backends: Mapping[str, Backend],
        refusals: Mapping[int, Mapping[str, str]],
        far_behind: float,
        on_device: frozenset[Engine] = frozenset(),
        copies: Copies = FREE,
        baseline_ms: Mapping[Engine, float] = MappingProxyType({}),
        policy: Policy = DEFAULT_POLICY,
    ) -> None:
        """``on_device``: engines that work in the device's memory, and what ``copies`` there and back cost.

        ``baseline_ms``: ms of the whole model on engines that ran it. ``policy``: how the time is divided.
        """
        self._meter, self._matches, self._backends, self._refusals = meter, tuple(matches), backends, refusals
        self._on_device, self._copies, self._ran_ms = on_device, copies, dict(baseline_ms)
        self._costs, self._policy = Costs(meter, self._matches, far_behind), policy
        self._profiled: dict[Engine, list[ProfiledCosts]] = {}
        self._late: frozenset[Engine] = frozenset()
        """Engines inside families for whose profiles there was no time. They take no part: timed standalone, their
        kernels would look cheaper than the profiled ones, although the family runs the same kernels."""
        self._expected: dict[Engine, frozenset[int]] = {}
        """Nodes of engines whose times are estimates."""
        self._borders: dict[Engine, Border] = {}
        self._sides: dict[Engine, Border] = {}
        """What :func:`fit_borders` gave, of which borders are made."""
        self._whole: dict[Engine, WholeModel] = {}
        stacked = {name for name, backend in backends.items() if isinstance(backend, StandsOnOthers)}
        self._dependents = [i for i, match in enumerate(self._matches) if match.backend in stacked]
        """What stands on other backends."""
        self._plain: dict[Engine, list[int]] = {}
        for index, match in enumerate(self._matches):
            if not match.rewrites and match.backend not in stacked:
                self._plain.setdefault(match.engine, []).append(index)

    @property
    def _graph(self) -> Graph:
        return self._meter.graph

    @cached_property
    def _families(self) -> dict[Engine, Engine]:
        return {match.engine: match.family for match in self._matches if match.family != match.engine}

    def profile(self, profiler: Profiler, on_done: OnDone) -> None:
        """Profile the kernels of libraries: the fastest engines first, then rewritten models, and then engines that
        are far behind, whose rewritten models come last."""
        asked = to_profile(self._graph, self._matches, self._backends)
        far_ms = self._policy.single_behind * min(self._ran_ms.values(), default=0.0)

        def turn(one: ProfileRequest) -> tuple[bool, bool, float]:
            family = self._families.get(one.engine, one.engine)
            ms = self._ran_ms.get(one.engine, self._ran_ms.get(family, math.inf))
            return ms > far_ms, bool(one.sites), ms

        late = {one.engine for one in asked if not one.sites and one.engine in self._families} - self._ran_ms.keys()
        for one, answer in profiler(sorted(asked, key=turn), lambda: self._meter.over(self._policy.profile_share)):
            late.discard(one.engine)
            if isinstance(answer, KernelTimes):
                pieces = () if one.sites else (one.region.nodes,)
                for engine, ms in node_ms(self._graph, one, answer).items():
                    self._profiled.setdefault(engine, []).append(ProfiledCosts(pieces, ms))
            on_done(1)
        priced = self._profiled.keys() | self._ran_ms.keys()
        self._late = frozenset(engine for engine in late if self._families[engine] in priced)

    def time_standalone(self, on_done: OnDone) -> None:
        """Time kernels of engines that no profile covers, the most expensive first; estimate the others from
        those."""
        self._costs.recall()
        kernels = {engine: self._unprofiled(engine) for engine in self._plain if engine not in self._late}
        in_turn = self._weightiest(kernels)
        self._costs.measure(in_turn, on_done, self._policy.standalone_share)
        self._costs.measure(self._inside(in_turn), on_done, self._policy.standalone_share)
        for engine, own in kernels.items():
            self._add_profile(engine, own)
        known = {engine: self._node_ms(engine) for engine in self._profiled}
        on_time = (i for i, match in enumerate(self._matches) if bordering(match.engine) not in self._late)
        rewritten = [i for i in on_time if self._matches[i].rewrites and self._summed(i, known) is None]
        rewritten.sort(key=lambda index: -sum(self._shape[node] for node in members(self._matches[index].nodes)))
        self._costs.measure(rewritten, on_done, self._policy.standalone_share)

    def _weightiest(self, kernels: Mapping[Engine, Mapping[NodeSet, int]]) -> list[int]:
        """Matches of ``kernels``, the slowest first; none of engines that are far behind with all of it."""
        best = min(self._whole_ms.values(), default=math.inf)
        weight: dict[int, float] = {}
        for engine, own in kernels.items():
            if self._whole_ms.get(engine, best) <= self._policy.kernels_far * best or not math.isfinite(best):
                weight |= {index: sum(self._shape[node] for node in members(nodes)) for nodes, index in own.items()}
        return sorted(weight, key=lambda index: (-weight[index], self._matches[index].nodes, index))

    def _add_profile(self, engine: Engine, own: Mapping[NodeSet, int]) -> None:
        """Add the node times of kernels ``own`` on ``engine``, from those that were timed and from the model as a
        whole."""
        ms = {self._matches[i].nodes: self._costs.ms[i] for i in self._plain[engine] if i in self._costs.ms}
        timed = [nodes for nodes in own if nodes in ms]
        covered = 0
        for nodes in own:
            covered |= nodes
        whole = self._ran_ms.get(engine) if covered == self._graph.all_nodes else None
        if not timed and whole is None:
            return
        pieces = tuple(own) if whole is None else (covered,)
        costs = ProfiledCosts(pieces, spread(self._shape, list(own), ms, whole))
        self._profiled.setdefault(engine, []).append(costs)
        self._expected[engine] = frozenset(costs.ms.keys() - {node for nodes in timed for node in members(nodes)})

    def _inside(self, kernels: Iterable[int]) -> list[int]:
        """Matches of one node each inside kernels of several nodes: they determine how a kernel's time is
        apportioned."""
        single = {match: i for i, match in enumerate(self._matches) if match.nodes.bit_count() == 1}
        found = []
        for kernel in (self._matches[index] for index in kernels if self._matches[index].nodes.bit_count() > 1):
            parts = (Match(1 << n, *kernel.engine, within(kernel.numerics, 1 << n), base=kernel.base)
                     for n in members(kernel.nodes))  # fmt: skip
            found += [single[part] for part in parts if part in single]
        return found

    def _unprofiled(self, engine: Engine) -> dict[NodeSet, int]:
        """Kernels of ``engine`` with nodes that no profile covers, by their nodes."""
        costs = self._node_ms(engine)
        own = {self._matches[i].nodes: i for i in self._plain[engine]}
        sets = kernel_sets(self._graph, own)
        return {nodes: own[nodes] for nodes in sets if not all(node in costs for node in members(nodes))}

    @cached_property
    def _whole_ms(self) -> dict[Engine, float]:
        """Latency of all of the model on engines that support all of it, so far as is known."""
        whole_ms = dict(self._ran_ms)
        for engine, parts in self._profiled.items():
            if len(parts) == 1 and len(parts[0].ms) == len(self._graph.nodes):
                whole_ms[engine] = sum(parts[0].ms.values())
        return whole_ms

    @cached_property
    def _shape(self) -> Sequence[float]:
        """Node times on the fastest engine whose profile covers all of them; a guess where none does."""
        # An engine that ran the whole model may have been profiled in a part of it only, where parts do not meet.
        count = len(self._graph.nodes)
        complete = (one for one, parts in self._profiled.items() if len(parts) == 1 and len(parts[0].ms) == count)
        full = [engine for engine in complete if engine in self._whole_ms]
        if not full:
            return guessed_ms(self._graph)
        ms = self._profiled[min(full, key=lambda engine: (self._whole_ms[engine], engine))][0].ms
        return [ms[node] for node in range(len(self._graph.nodes))]

    def cut(self, measure: MeasureWholeModels, on_done: OnDone) -> None:
        """Measure border probes between engines, and inside families; fit the cost of borders."""
        rows: list[BorderSample] = []
        families = {engine: self._families.get(engine, engine) for engine in map(bordering, self._engines)}
        space = self._space(dict.fromkeys(families, Border(0.0, 0.0)))
        for engine in self._plain:
            costs, placement = self._node_ms(engine), whole_on(space, engine)
            if placement is not None and len(costs) == len(self._graph.nodes):
                self._whole[engine] = WholeModel(sum(costs.values()), sides_of(space, placement))
        kinds = [random_probes(space, some, Random(0)) for some in self._to_cut(space) if len(space.graph.nodes) > 1]
        for probes in cycle(kinds):
            enough = len(rows) >= self._policy.cuts or self._meter.over()
            if enough or not (some := list(islice(probes, PROBES_TOGETHER))):
                break
            for placement, outcome in zip(some, measure(some), strict=False):
                if outcome is not None and outcome.latency_ms is not None:
                    given = outcome.latency_ms, outcome.contended
                    rows.append(sample_of(space, placement, self._whole, *given))
                on_done(1)
        fitted = fit_borders(rows, families.values(), families, self._policy)
        self._sides = fitted
        for engine, family in families.items():
            more = fitted[engine] if engine != family else Border(0.0, 0.0)
            outer = fitted[family]
            self._borders[engine] = Border(outer.fixed_ms + more.fixed_ms, outer.ms_per_mb + more.ms_per_mb)

    def _to_cut(self, space: SearchSpace) -> list[list[Engine]]:
        """The fastest engines in float32, and the fastest families in which several run all of the model."""
        totals = sorted((self._total(space, engine), engine) for engine in space.engines if engine in self._plain)
        exact = {match.engine for match in self._matches if self._meter.exact(match)}
        near = [(ms, engine) for ms, engine in totals if engine in exact]
        kinds = [[engine for ms, engine in near[:MOST_CUT] if ms <= self._policy.cut_near * near[0][0]]]
        inside: dict[Engine, list[Engine]] = {}
        for _, engine in totals:
            if engine in self._whole:
                inside.setdefault(self._families.get(engine, engine), []).append(engine)
        kinds += [some for some in inside.values() if len(some) > 1][:MOST_FAMILIES]
        return [some for some in kinds if len(some) > 1]

    @cached_property
    def _engines(self) -> frozenset[Engine]:
        return frozenset(match.engine for match in self._matches)

    def _total(self, space: SearchSpace, engine: Engine) -> float:
        """Cost of the whole model on ``engine``, as far as it supports it, with the rest at its cheapest."""
        own = self._node_ms(engine)
        cheapest = (min(map(space.ms_per_node, options)) for options in space.candidates)
        return sum(own.get(node, ms) for node, ms in enumerate(cheapest))

    def time_dependents(self, on_done: OnDone) -> None:
        """Time regions of backends that stand on others."""
        if self._dependents:
            self._meter.extend(MORE_SECONDS)
            space = self.space()
            measure_dependents(self._costs, self._meter, space, self._dependents, on_done)

    def space(self) -> SearchSpace:
        """The search space as far as costs are known."""
        return self._space(self._borders)

    def _space(self, borders: Mapping[Engine, Border]) -> SearchSpace:
        known = {engine: self._node_ms(engine, borders) for engine in self._profiled}
        inner = tuple(self._inner(index, known, borders) for index in range(len(self._matches)))
        cost = CostModel(inner, borders, self._guesses(inner), self._families, self._on_device, self._copies)
        return SearchSpace(self._graph, self._matches, cost, self._reasons())

    def _node_ms(self, engine: Engine, borders: Mapping[Engine, Border] = MappingProxyType({})) -> dict[int, float]:
        """Node times on ``engine``, without borders where these are known."""
        found: dict[int, float] = {}
        for costs in self._profiled.get(engine, ()):
            found |= costs.ms
            for piece in costs.pieces:
                ms = sum(costs.ms[node] for node in members(piece))
                share = inner_ms(self._graph, piece, ms, borders[engine]) / ms if ms and engine in borders else 1.0
                if engine in self._whole and self._sides:
                    share = self._whole[engine].share(self._sides)
                found |= {node: share * costs.ms[node] for node in members(piece)}
        return found

    def _inner(
        self, index: int, known: Mapping[Engine, Mapping[int, float]], borders: Mapping[Engine, Border]
    ) -> float:
        """Cost of match ``index`` without borders; infinite where that is not known, or a part of it failed."""
        match = self._matches[index]
        if any(not nodes & ~match.nodes for nodes in self._failed.get(match.engine, ())):
            return math.inf
        if (summed := self._summed(index, known)) is not None:
            return summed
        # An earlier run may have timed kernels standalone for an engine that is excluded here.
        ms = None if bordering(match.engine) in self._late else self._costs.ms.get(index)
        return math.inf if ms is None else inner_ms(self._graph, match.nodes, ms, borders[bordering(match.engine)])

    def _summed(self, index: int, known: Mapping[Engine, Mapping[int, float]]) -> float | None:
        """Sum of the times of match ``index``'s nodes; None where some are not known in it."""
        match = self._matches[index]
        own = known.get(match.engine, {})
        needed = match.nodes
        if match.rewrites:  # nodes outside the site are unchanged
            ((_, needed),) = match.rewrites
            own = {**known.get(bordering(match.engine), {}), **own}
            if needed and not all(node in known.get(match.engine, {}) for node in members(needed)):
                return None
        return sum(own[n] for n in members(match.nodes)) if all(n in own for n in members(match.nodes)) else None

    @property
    def _failed(self) -> dict[Engine, set[NodeSet]]:
        """Node sets that failed on an engine: no match that contains one takes part."""
        failed: dict[Engine, set[NodeSet]] = {}
        for index in self._costs.failures:
            failed.setdefault(self._matches[index].engine, set()).add(self._matches[index].nodes)
        return failed

    def _guesses(self, inner: Sequence[float]) -> frozenset[int]:
        """Matches whose costs come neither from a measurement nor from a profile."""
        expected = self._expected
        return frozenset(
            index
            for index, match in enumerate(self._matches)
            if math.isfinite(inner[index]) and index not in self._costs.ms
            if any(node in expected.get(match.engine, ()) for node in members(match.nodes))
        )

    def table(self) -> CostTable:
        """Standalone costs: as measured standalone, else including the match's borders."""
        space = self.space()
        ms = list(space.cost.match_ms)
        for index, match in enumerate(self._matches):
            border = border_ms(self._graph, match.nodes, self._borders[bordering(match.engine)])
            ms[index] = self._costs.ms.get(index, ms[index] + border)
        return CostTable(tuple(ms), self._costs.failures, space.cost.estimated)

    def _reasons(self) -> dict[int, dict[str, str]]:
        """Why nodes have no match: refusals of backends, and failures to build or time."""
        reasons = {node: dict(refused) for node, refused in self._refusals.items()}
        for index, failure in self._costs.failures.items():
            match = self._matches[index]
            for node in members(match.nodes):
                reasons.setdefault(node, {}).setdefault(match.backend, f"accepted, but failed ({failure})")
        return reasons
