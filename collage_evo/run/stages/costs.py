"""Cost stage: the search's matches, including tuned ones, and their costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import Matches
from collage_evo.config import Config
from collage_evo.costs.copies import engines_off_host, measure_copies
from collage_evo.costs.kernel_tuning import Tuned, tune_kernels
from collage_evo.costs.known_costs import CostScope
from collage_evo.costs.matches import CostMeter, Costs, CostSettings, CostTable, measure_costs
from collage_evo.costs.measure_costs import measure_borders, profile_engines, time_kernels
from collage_evo.costs.profiles import profile_regions
from collage_evo.costs.saved_costs import COSTS, MeasuredCosts, SavedCosts
from collage_evo.files import Stored
from collage_evo.fitness.machine import Regions
from collage_evo.genome.cost_model import FREE, Engine
from collage_evo.genome.outcome import Terms
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.prepare import SearchableModel
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.runtime.timing import TimingSettings

EXPECTED = "expected"
"""Key of costs that were not measured: costs that are to be measured have another one."""
Tuneds = tuple[Tuned, ...]
TUNING = Stored("work/tuning.json", Tuneds)
CUT_TIMING = TimingSettings(warmup=2, min_runs=9, min_seconds=0.1, max_seconds=3.0)
"""Timing settings of whole models for costs: their number makes up for the remaining noise."""


def tune_backends(run: RunContext, model: SearchableModel, untuned: Matches, backends: Backends) -> Tuneds | None:
    """Tune the kernels of backends that have trials to spend; None if there is no such backend."""
    trials = run.config.backends.trials
    if not trials:
        return None
    graph, stage = model.graph, run.stage(Stage.COSTS_BEFORE_TUNING, len(untuned.matches))
    with run.machine.regions() as regions, stage:
        meter = cost_meter(run, graph, regions, math.inf)
        table = measure_costs(meter, untuned.matches, run.config.costs.far_behind, run.reporter.advance)
    tuned = []
    for backend in backends:
        if budget := trials.get(backend.name):
            with run.stage(Stage.TUNE_KERNELS, budget):
                advance = run.reporter.advance
                tuned.append(
                    tune_kernels(run.machine, run.cache, backend, budget, graph, untuned.matches, table, advance)
                )
    return tuple(tuned)


def gather_costs(
    run: RunContext,
    graph: Graph,
    offered: Matches,
    backends: Sequence[Backend],
    terms: Terms = MappingProxyType({}),
    baseline_ms: Mapping[Engine, float] = MappingProxyType({}),
    measured: Mapping[int, float] = MappingProxyType({}),
    seconds: float = math.inf,
) -> MeasuredCosts:
    """Cost of the matches that matter, and of the borders between backends, measured in about so many ``seconds``.

    ``terms``: what the matches add to objectives besides latency. ``baseline_ms``: ms of the whole model on engines
    that ran it, with exclusive use of the machine. ``measured``: the latencies of placements that were
    measured already, apportioned to their matches.
    """
    target, policy = run.setting.target, run.config.policy
    far_behind, advance = run.config.costs.far_behind, run.reporter.advance
    by_name = {backend.name: backend for backend in backends}
    there = engines_off_host({match.engine for match in offered.matches})
    copies = FREE
    with run.machine.regions() as regions:
        if there:
            with run.stage(Stage.COPIES):
                copies = measure_copies(regions, target, run.database)
        meter = cost_meter(run, graph, regions, seconds)
        scope = CostScope(
            graph, offered.matches, by_name, offered.refusals, there, copies, baseline_ms, policy, measured
        )
        costs = Costs(meter, offered.matches, far_behind)
        with run.stage(Stage.PROFILES):
            profiler = partial(profile_regions, regions, CUT_TIMING)
            engine_costs = profile_engines(scope, meter, profiler, advance)
        with run.stage(Stage.UNPROFILED):
            engine_costs = time_kernels(engine_costs, costs, advance)
        with run.stage(Stage.BORDERS):
            probe = partial(regions.placements, timing=CUT_TIMING)
            engine_costs = measure_borders(engine_costs, meter, probe, advance)
        if meter.contended:
            run.reporter.log(
                f"{meter.contended} of {meter.measured} parts were timed while something else used the same "
                "cores; stop other programs for better times"
            )
        space, table = replace(engine_costs.space(), terms=terms), engine_costs.table()
    return MeasuredCosts(table, space, meter.measured, meter.contended, meter.cache_hits)


def expected_costs(run: RunContext, space: SearchSpace) -> MeasuredCosts:
    """The costs that ``space`` expects, without measurements, recorded in place of those of :func:`gather_costs`."""
    every = frozenset(range(len(space.matches)))
    table = CostTable(space.cost.match_ms, {})
    space = replace(space, cost=replace(space.cost, estimated=every))
    costs = MeasuredCosts(table, space, 0, 0, 0)
    run.store.put(COSTS, SavedCosts.of(EXPECTED, costs))
    return costs


def cost_meter(run: RunContext, graph: Graph, regions: Regions, seconds: float) -> CostMeter:
    return CostMeter(graph, regions, run.setting.target, run.database, cost_settings(run.config, seconds))


def cost_settings(config: Config, seconds: float = math.inf) -> CostSettings:
    """Settings of standalone timing of matches, for ``seconds`` in all."""
    costs = config.costs
    return CostSettings(costs.timing.settings(), costs.flush, seconds, config.verify.keeps_nonfinite)
