"""Plan of a run: a table of the records that it makes, in order.

Commands want different records of it: ``run``, ``resume`` and each trial of a sweep the :class:`Result`; with several
profiles of shapes each first its :class:`Baselines`, which give a first answer; ``tune`` what was :class:`Searched`.
A run that skips its search evaluates :data:`WITHOUT_SEARCH`, and ``pick`` a plan that reads the search.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.expected import apportioned_ms, expected_space
from collage_evo.costs.kernel_tuning import Tuning
from collage_evo.costs.saved_costs import COSTS, MeasuredCosts, SavedCosts, costs_key
from collage_evo.errors import NotSearchable
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.prepare import SearchableModel
from collage_evo.report.finished import RESULT
from collage_evo.run.budget import SEARCH_SKIPPED, exceeds_planned_time
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import seconds_left
from collage_evo.run.final import compared
from collage_evo.run.machine import Backends
from collage_evo.run.objectives import SHARES, Precision, answer_bounds, search_bounds, terms
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import ByMaker, Key, Plan, Row, Seconds
from collage_evo.run.search import FirstEvaluated, Searched, SearchRecord
from collage_evo.run.stages.baselines import (
    ON_NORMALISED,
    Baselines,
    NormalisedBaselines,
    fall_back,
    measure_baselines,
    ms_on_normalised,
    on_normalised,
)
from collage_evo.run.stages.costs import TUNING, expected_costs, gather_costs, tune_backends
from collage_evo.run.stages.evolve import evolve, pace_of, recalled_search, skipped_search
from collage_evo.run.stages.matches import MATCHES, find_matches, matches, matches_key
from collage_evo.run.stages.mixtures import MIXTURES, EarlyMixtures, in_space, measure_early
from collage_evo.run.stages.model import NORMALISED, normalise
from collage_evo.run.stages.precision import RANGES, Calibrated, calibrated_ranges, precision, predict_losses
from collage_evo.run.stages.threads import THREADS, threads_that_pay
from collage_evo.run.transferred import Transfer, transfer
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.seeds import Seeds, make_seeds
from collage_evo.search.mixtures.likely import suffices, throughout
from collage_evo.search.mixtures.measured import corrections_by


@dataclass(frozen=True)
class SearchSkipped:
    """Whether the run ends with its early mixtures, as a search would exceed the planned time: one suffices, or the
    run has a deadline."""

    skips: bool


def early(
    run: RunContext,
    model: SearchableModel,
    found: Matches,
    losses: Precision,
    transferred: Transfer,
    single: Baselines,
    normalised: NormalisedBaselines,
    publisher: Publisher,
    key: Key,
) -> EarlyMixtures:
    """Likely mixtures of precisions, measured before the costs of a search that begins."""
    if transferred.known or checkpoint.exists(run.directory):
        return EarlyMixtures(key, ())
    try:
        space = _expected_space(run, model, found, losses, normalised)
    except NotSearchable:
        return EarlyMixtures(key, ())
    return EarlyMixtures(key, measure_early(run, space, single, normalised.ms, publisher))


def untuned_key(run: RunContext, model: SearchableModel, found: Matches) -> Key:
    """Key of what is measured of the matches before kernels are tuned."""
    return Key(costs_key(model.graph, found, run.setting.target, run.config.policy))


def _expected_space(
    run: RunContext, model: SearchableModel, found: Matches, losses: Precision, single: NormalisedBaselines
) -> SearchSpace:
    """The space of the search at the costs that the baselines' times let expect."""
    return expected_space(model.graph, found, terms(run, model.graph, losses, found.matches), single.ms)


def skips_search(
    run: RunContext, single: Baselines, normalised: NormalisedBaselines, mixtures: EarlyMixtures
) -> bool:
    pace = pace_of(run, single, len(mixtures.mixtures))
    exceeds = exceeds_planned_time(run.config, time.monotonic() - run.begin, pace)
    over = not math.isinf(seconds_left())  # a mixture that does not suffice is better than costs that nothing uses
    return exceeds and (over or suffices(mixtures.mixtures, normalised.ms, search_bounds(run)))


def measured_costs(
    run: RunContext,
    model: SearchableModel,
    untuned: Matches,
    tuned: Tuning,
    losses: Precision,
    transferred: Transfer,
    single: NormalisedBaselines,
    mixtures: EarlyMixtures,
    backends: Backends,
    key: Key,
    seconds: Seconds,
) -> SavedCosts:
    """The cost of each match, from another run or measured."""
    graph, found = model.graph, tuned.matches
    added = terms(run, graph, losses, found.matches)
    sessions = run.machine.sessions  # with several, baselines have a share of the machine's time
    baseline_ms: dict[Engine, float] = {engine: ms * sessions for engine, ms in single.ms.items()}
    known = transferred.known.costs(run, found, added) if transferred.known else None
    best_ms = min(single.ms.values(), default=0.0)
    apportioned = apportioned_ms(mixtures.mixtures, graph, untuned.matches, best_ms)
    costs = known or gather_costs(run, graph, found, backends, added, baseline_ms, apportioned, seconds)
    return SavedCosts.of(key, costs)


def tuned_key(run: RunContext, model: SearchableModel, tuned: Tuning) -> Key:
    """The same with the matches of tuned kernels."""
    return untuned_key(run, model, tuned.matches)


def in_use(saved: SavedCosts, run: RunContext, model: SearchableModel, tuned: Tuning) -> MeasuredCosts:
    """The space of the search: the cost of each match, by the search's objective."""
    costs = saved.costs(model.graph, tuned.matches.refusals)
    space = replace(costs.space, policy=run.config.policy)
    return replace(costs, space=space.costing(space.cost.for_sessions(run.machine.sessions)))


def implied_costs(
    run: RunContext, model: SearchableModel, found: Matches, losses: Precision, single: NormalisedBaselines
) -> MeasuredCosts:
    """The costs of a run without a search: those that were expected of its mixtures."""
    space = _expected_space(run, model, found, losses, single)
    return expected_costs(run, replace(space, policy=run.config.policy))


def seeds(
    run: RunContext,
    costs: MeasuredCosts,
    single: NormalisedBaselines,
    mixtures: EarlyMixtures,
    transferred: Transfer,
) -> Seeds:
    corrections = corrections_by(mixtures.mixtures, costs.space, run.limits.budget)
    wide = throughout(costs.space, costs.space.engines, mixtures.mixtures)
    made = make_seeds(costs.space, answer_bounds(run), single.ms, corrections, wide)
    return transferred.known.seeds(costs.space, made) if transferred.known else made


def first_evaluated(costs: MeasuredCosts, mixtures: EarlyMixtures) -> FirstEvaluated:
    return FirstEvaluated(in_space(mixtures.mixtures, costs.space))


def searched(
    model: SearchableModel,
    tuned: Tuning,
    costs: MeasuredCosts,
    first: Seeds,
    record: SearchRecord,
    single: NormalisedBaselines,
) -> Searched:
    return Searched(model, tuned.tuned, costs, first, record, single.ms)


PLAN = Plan(
    (
        Row(fall_back, ByMaker("fallbacks.json")),
        Row(Publisher, ByMaker("best.collage")),
        Row(measure_baselines, ByMaker("baselines.json"), bound="backends.seconds"),
        Row(threads_that_pay, THREADS),
        Row(normalise, ByMaker(NORMALISED.path)),
        Row(ms_on_normalised, ON_NORMALISED, on_normalised),
        Row(calibrated_ranges, RANGES, Calibrated, bound="accuracy.seconds"),
        Row(find_matches, MATCHES, matches, matches_key),
        Row(transfer),
        Row(predict_losses, SHARES, precision, bound="accuracy.seconds"),
        Row(early, MIXTURES, key=untuned_key),
        Row(skips_search, SEARCH_SKIPPED, SearchSkipped),
        Row(tune_backends, TUNING, Tuning.of),
        Row(measured_costs, COSTS, in_use, tuned_key, "costs.seconds"),
        Row(seeds),
        Row(first_evaluated),
        Row(evolve, ByMaker("checkpoint.json")),
        Row(searched),
        Row(compared, ByMaker(RESULT), bound="final.seconds"),
    )
)
"""All records of a run, in the order in which it makes them; each row needs records of rows before it only."""
WITHOUT_SEARCH = PLAN.replacing(
    Row(implied_costs, ByMaker(COSTS.path)), Row(skipped_search, ByMaker("checkpoint.json"))
)
"""Nothing is measured but what the mixtures need: costs are those that they were expected at."""


def picking(skipped: bool) -> Plan:
    """The plan that reads the search of a run that ended, and whether it ``skipped`` that."""
    return (WITHOUT_SEARCH if skipped else PLAN).replacing(Row(recalled_search, ByMaker("checkpoint.json")))
