"""Stages of measuring the costs of one graph's matches; each takes the known costs and returns them with its own.

Libraries with a profiler report the times of their kernels while they run the whole model, in each of their variants
(``costs/profiles.py``). Kernels of the others are timed standalone, the most expensive first, and scaled to the whole
model's latency there (``costs/unprofiled.py``). Then border probes, random cuts of the model between engines, are
measured as whole models: their time beyond their kernels is the price of borders. Regions that stand on other
backends, and rewrites that no profile covers, are timed standalone as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from random import Random

from collage_evo.costs.borders import (
    BorderSample,
    WholeModel,
    fit_borders,
    random_probes,
    sample_of,
    sides_of,
    whole_on,
)
from collage_evo.costs.known_costs import CostScope, FittedBorders, KnownCosts, ProfiledCosts
from collage_evo.costs.matches import CostMeter, Costs
from collage_evo.costs.profiles import PROFILED_TOGETHER, ProfileRequest, node_ms, to_profile
from collage_evo.costs.unprofiled import kernel_sets, spread
from collage_evo.fitness.jobs import KernelTimes
from collage_evo.genome.cost_model import Border, Engine, bordering, family_ms
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import NodeSet, members, union
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Match, Placement
from collage_evo.precision.transforms.edits import within
from collage_evo.pruning import SLOW_CUT, SLOW_ENGINE, SLOW_MODEL

MOST_CUT = 4
"""Engines between which border probes cut the model: the parts of each have to be compiled. Borders of others have
their prior cost."""
MOST_FAMILIES = 2
"""Families inside which the model is cut: between float32 and int8, for example."""
PROFILE_SHARE, STANDALONE_SHARE = 0.55, 0.75
"""Shares of the time for costs after which no more is profiled, and no kernel is timed standalone; the rest is for
border probes. Chosen."""
PROBES_TOGETHER = 4
"""Border probes that are compiled together."""

OnDone = Callable[[int], None]
Profiled = tuple[ProfileRequest, KernelTimes | Failure]
Profiler = Callable[[Sequence[ProfileRequest], int, Callable[[], bool]], Iterable[Profiled]]
"""Profiles regions, in order, so many at least, until the callback returns that the time is over."""
MeasureWholeModels = Callable[[Sequence[Placement]], Sequence[Outcome | None]]
"""Measures placements of the whole model."""


def profile_engines(scope: CostScope, meter: CostMeter, profiler: Profiler, on_done: OnDone) -> KnownCosts:
    """Profile the kernels of libraries: the fastest engines first, then rewritten models, and then engines that are
    far behind, whose rewritten models come last.

    Engines of placements that were measured come before all, and are profiled whatever time it takes: the answer may
    be near these. So are the next that are not far behind, up to ``PROFILED_TOGETHER`` in all. Of a large model that
    may be all the time for profiles: engines without one have their time on the whole model, apportioned.
    """
    asked = to_profile(scope.graph, scope.matches, scope.backends)
    families, ran_ms = scope.families, scope.baseline_ms
    far_ms = SLOW_ENGINE.number * min(ran_ms.values(), default=0.0)

    def turn(one: ProfileRequest) -> tuple[bool, bool, bool, float]:
        # Of an engine that never ran the whole model, such as int8 at some operators, its family's best is expected.
        ms = ran_ms.get(one.engine, family_ms(one.engine, families, ran_ms))
        unmeasured = bool(one.sites) or one.engine not in scope.measured_engines
        return unmeasured, ms > far_ms, bool(one.sites), ms

    profiles: dict[Engine, tuple[ProfiledCosts, ...]] = {}
    late = {one.engine for one in asked if not one.sites and one.engine in families} - ran_ms.keys()
    turns = [*map(turn, asked)]
    near = sum(not far and not rewritten for _, far, rewritten, _ in turns)
    needed = max(min(max(1, near), PROFILED_TOGETHER), sum(not unmeasured for unmeasured, *_ in turns))
    for one, answer in profiler(sorted(asked, key=turn), needed, lambda: meter.over(PROFILE_SHARE)):
        late.discard(one.engine)
        if isinstance(answer, KernelTimes):
            pieces = () if one.sites else (one.region.nodes,)
            for engine, ms in node_ms(scope.graph, one, answer).items():
                profiles[engine] = (*profiles.get(engine, ()), ProfiledCosts(pieces, ms))
        on_done(1)
    priced = profiles.keys() | ran_ms.keys()
    return KnownCosts(scope, profiles, frozenset(engine for engine in late if families[engine] in priced))


def time_kernels(known: KnownCosts, costs: Costs, on_done: OnDone) -> KnownCosts:
    """Time kernels of engines that no profile covers, the most expensive first; estimate the others from those.

    Regions of which no sum of kernels predicts the time follow, the largest first: rewrites that no profile covers,
    and those of backends that stand on others.
    """
    scope = known.scope
    costs.recall()
    kernels = {engine: _unprofiled(known, engine) for engine in scope.plain if engine not in known.late}
    in_turn = _weightiest(known, kernels)
    costs.measure(in_turn, on_done, STANDALONE_SHARE)
    costs.measure(_inside(scope.matches, in_turn), on_done, STANDALONE_SHARE)
    profiles, expected = dict(known.profiles), dict(known.expected)
    for engine, index_of in kernels.items():
        ms = {scope.matches[i].nodes: costs.ms[i] for i in scope.plain[engine] if i in costs.ms}
        if (profile := _from_kernels(known, engine, list(index_of), ms)) is not None:
            profiles[engine] = (*profiles.get(engine, ()), profile)
            timed = {node for nodes in index_of if nodes in ms for node in members(nodes)}
            expected[engine] = frozenset(profile.ms.keys() - timed)
    priced = replace(known, profiles=profiles, expected=expected)
    by_engine = {engine: priced.node_ms(engine) for engine in profiles}
    rewritten = [index for index, match in enumerate(scope.matches)
                 if match.rewrites and bordering(match.engine) not in known.late
                 and priced.summed(match, by_engine) is None]  # fmt: skip
    regions = [*rewritten, *scope.dependents]
    regions.sort(key=lambda index: -sum(known.shape[node] for node in members(scope.matches[index].nodes)))
    costs.measure(regions, on_done, STANDALONE_SHARE)
    return replace(priced, standalone_ms=dict(costs.ms), failures=dict(costs.failures))


def _unprofiled(known: KnownCosts, engine: Engine) -> dict[NodeSet, int]:
    """Kernels of ``engine`` with nodes that no profile covers, by their nodes."""
    scope, profiled = known.scope, known.node_ms(engine)
    index_of = {scope.matches[i].nodes: i for i in scope.plain[engine]}
    sets = kernel_sets(scope.graph, index_of)
    return {nodes: index_of[nodes] for nodes in sets if not all(node in profiled for node in members(nodes))}


def _weightiest(known: KnownCosts, kernels: Mapping[Engine, Mapping[NodeSet, int]]) -> list[int]:
    """Matches of ``kernels``, the slowest first; none of engines that are far behind with all of it."""
    whole_ms, scope = known.whole_ms, known.scope
    best = min(whole_ms.values(), default=math.inf)
    weight: dict[int, float] = {}
    for engine, index_of in kernels.items():
        if whole_ms.get(engine, best) <= scope.policy.single_give_up * best or not math.isfinite(best):
            weight |= {index: sum(known.shape[node] for node in members(nodes)) for nodes, index in index_of.items()}
    return sorted(weight, key=lambda index: (-weight[index], scope.matches[index].nodes, index))


def _inside(matches: Sequence[Match], kernels: Iterable[int]) -> list[int]:
    """Matches of one node each inside kernels of several nodes: they determine how a kernel's time is apportioned."""
    single = {match: i for i, match in enumerate(matches) if match.nodes.bit_count() == 1}
    several = (matches[index] for index in kernels if matches[index].nodes.bit_count() > 1)
    parts = (Match(1 << n, *kernel.engine, within(kernel.numerics, 1 << n), base=kernel.base)
             for kernel in several for n in members(kernel.nodes))  # fmt: skip
    return [single[part] for part in parts if part in single]


def _from_kernels(
    known: KnownCosts, engine: Engine, kernels: Sequence[NodeSet], ms: Mapping[NodeSet, float]
) -> ProfiledCosts | None:
    """Node times of ``kernels`` on ``engine``, from those that were timed (``ms``) and from the model as a whole."""
    covered = union(kernels)
    whole = known.scope.baseline_ms.get(engine) if covered == known.scope.graph.all_nodes else None
    if whole is None and not any(nodes in ms for nodes in kernels):
        return None
    pieces = tuple(kernels) if whole is None else (covered,)
    return ProfiledCosts(pieces, spread(known.shape, kernels, ms, whole))


def measure_borders(
    known: KnownCosts, meter: CostMeter, measure: MeasureWholeModels, on_done: OnDone
) -> KnownCosts:
    """Measure border probes between engines, and inside families; fit the cost of borders.

    A model that takes long has no probes: each takes as long as a placement of its search, and its borders are small
    compared with its regions.
    """
    scope = known.scope
    rows: list[BorderSample] = []
    families = {engine: scope.families.get(engine, engine) for engine in map(bordering, scope.engines)}
    none = Border(0.0, 0.0)
    space = replace(known, fitted=FittedBorders(dict.fromkeys(families, none))).space()
    whole_models: dict[Engine, WholeModel] = {}
    for engine in scope.plain:
        node_ms, placement = known.node_ms(engine), whole_on(space, engine)
        if placement is not None and len(node_ms) == len(scope.graph.nodes):
            whole_models[engine] = WholeModel(sum(node_ms.values()), sides_of(space, placement))
    kinds = [
        random_probes(space, some, Random(0))
        for some in _to_cut(known, space, meter, whole_models.keys())
        if len(space.graph.nodes) > 1 and min(known.whole_ms.values(), default=0.0) < SLOW_MODEL.number
    ]
    for probes in cycle(kinds):
        enough = len(rows) >= scope.policy.cuts or meter.over()
        if enough or not (some := list(islice(probes, PROBES_TOGETHER))):
            break
        for placement, outcome in zip(some, measure(some), strict=False):
            if outcome is not None and outcome.latency_ms is not None:
                rows.append(sample_of(space, placement, whole_models, outcome.latency_ms, outcome.contended))
            on_done(1)
    sides = fit_borders(rows, families.values(), families, scope.policy)
    borders: dict[Engine, Border] = {}
    for engine, family in families.items():
        more, outer = sides[engine] if engine != family else none, sides[family]
        borders[engine] = Border(outer.fixed_ms + more.fixed_ms, outer.ms_per_mb + more.ms_per_mb)
    return replace(known, fitted=FittedBorders(borders, sides, whole_models))


def _to_cut(
    known: KnownCosts, space: SearchSpace, meter: CostMeter, whole: Iterable[Engine]
) -> list[list[Engine]]:
    """The fastest engines in float32, and the fastest families in which several run all of the model."""
    scope = known.scope
    totals = sorted((_total_ms(known, space, engine), engine) for engine in space.engines if engine in scope.plain)
    exact = {match.engine for match in scope.matches if meter.exact(match)}
    near = [(ms, engine) for ms, engine in totals if engine in exact]
    kinds = [[engine for ms, engine in near[:MOST_CUT] if ms <= SLOW_CUT.number * near[0][0]]]
    inside = multimap((scope.families.get(engine, engine), engine) for _, engine in totals if engine in whole)
    kinds += [engines for engines in inside.values() if len(engines) > 1][:MOST_FAMILIES]
    return [engines for engines in kinds if len(engines) > 1]


def _total_ms(known: KnownCosts, space: SearchSpace, engine: Engine) -> float:
    """Cost of the whole model on ``engine``, as far as it supports it, with the rest at its cheapest."""
    node_ms = known.node_ms(engine)
    cheapest = (min(map(space.ms_per_node, options)) for options in space.candidates)
    return sum(node_ms.get(node, ms) for node, ms in enumerate(cheapest))
