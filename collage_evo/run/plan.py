"""Plan of a run: a table of the records that it makes, in order.

Commands want different records of it: ``run``, ``resume`` and each trial of a sweep the :class:`Result`; with several
profiles of shapes each first its :class:`Baselines`, which give a first answer; ``tune`` what was :class:`Searched`.
A run that skips its search evaluates :data:`WITHOUT_SEARCH`, and ``pick`` a plan that reads the search.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from collage_evo.backends.enumerate import Matches
from collage_evo.costs.expected import apportioned_ms, expected_space
from collage_evo.costs.kernel_tuning import Tuning
from collage_evo.costs.saved_costs import MeasuredCosts, costs_key
from collage_evo.errors import NotSearchable
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.prepare import SearchableModel
from collage_evo.report.finished import RESULT
from collage_evo.report.stage import Stage
from collage_evo.run.budget import SEARCH_SKIPPED, exceeds_planned_time
from collage_evo.run.context import RunContext
from collage_evo.run.final import compared
from collage_evo.run.machine import Backends
from collage_evo.run.objectives import Precision, answer_bounds, search_bounds, terms
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Plan, Row
from collage_evo.run.search import FirstEvaluated, Searched, SearchRecord
from collage_evo.run.stages.baselines import (
    Baselines,
    NormalisedBaselines,
    fall_back,
    measure_baselines,
    on_normalised,
)
from collage_evo.run.stages.costs import expected_costs, gather_costs, tune_backends
from collage_evo.run.stages.evolve import evolve, pace_of, recalled_search, skipped_search
from collage_evo.run.stages.matches import find_matches
from collage_evo.run.stages.mixtures import MIXTURES, EarlyMixtures, in_space, measure_early
from collage_evo.run.stages.model import normalise
from collage_evo.run.stages.precision import Calibrated, calibrated_ranges, predict_losses
from collage_evo.run.stages.threads import threads_that_pay
from collage_evo.run.transferred import TransferredCosts
from collage_evo.run.warm_start import WarmStart
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.seeds import Seeds, make_seeds
from collage_evo.search.mixtures.likely import suffices
from collage_evo.search.mixtures.measured import corrections_by


@dataclass(frozen=True)
class Transfer:
    """What an earlier run knows about this graph; None if this run does not begin with another one's answer."""

    known: TransferredCosts | None


@dataclass(frozen=True)
class SearchSkipped:
    """Whether the run ends with its early mixtures: one suffices, and a search would exceed the planned time."""

    skips: bool


def transfer(warm: WarmStart, model: SearchableModel) -> Transfer:
    return Transfer(TransferredCosts.of(warm.earlier, model.graph) if warm.earlier else None)


def precision(
    run: RunContext, model: SearchableModel, of: Calibrated, found: Matches, transferred: Transfer
) -> Precision:
    known = transferred.known.sensitivities if transferred.known else None
    return predict_losses(run, model, of.ranges, found.matches, known)


def early(
    run: RunContext,
    model: SearchableModel,
    found: Matches,
    losses: Precision,
    transferred: Transfer,
    single: Baselines,
    normalised: NormalisedBaselines,
    publisher: Publisher,
) -> EarlyMixtures:
    """Likely mixtures of precisions, measured before the costs of a search that begins."""
    key = costs_key(model.graph, found, run.setting.target, run.config.policy)
    recorded = run.store.get(MIXTURES, EarlyMixtures)
    if recorded is not None and recorded.key == key:
        return recorded
    if transferred.known or checkpoint.exists(run.directory):
        return EarlyMixtures(key, ())
    try:
        space = _expected_space(run, model, found, losses, normalised)
    except NotSearchable:
        return EarlyMixtures(key, ())
    mixtures = measure_early(run, space, single, normalised.ms, publisher)
    return run.store.put(MIXTURES, EarlyMixtures, EarlyMixtures(key, mixtures))


def _expected_space(
    run: RunContext, model: SearchableModel, found: Matches, losses: Precision, single: NormalisedBaselines
) -> SearchSpace:
    """The space of the search at the costs that the baselines' times let expect."""
    return expected_space(model.graph, found, terms(run, model.graph, losses, found.matches), single.ms)


def search_skipped(
    run: RunContext, single: Baselines, normalised: NormalisedBaselines, mixtures: EarlyMixtures
) -> SearchSkipped:
    def decide() -> bool:
        pace = pace_of(run, single, len(mixtures.mixtures))
        exceeds = exceeds_planned_time(run.config, time.monotonic() - run.begin, pace)
        return exceeds and suffices(mixtures.mixtures, normalised.ms, search_bounds(run))

    skips = run.store.once(SEARCH_SKIPPED, bool, decide)
    if skips:
        run.reporter.log("the run skips the search, which takes long for this model: resume it to search")
    return SearchSkipped(skips)


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
) -> MeasuredCosts:
    """The space of the search: the cost of each match, by the search's objective."""
    graph, found = model.graph, tuned.matches
    added = terms(run, graph, losses, found.matches)
    sessions = run.machine.sessions  # with several, baselines have a share of the machine's time
    baseline_ms: dict[Engine, float] = {engine: ms * sessions for engine, ms in single.ms.items()}
    known = transferred.known.costs(run, found, added) if transferred.known else None
    best_ms = min(single.ms.values(), default=0.0)
    apportioned = apportioned_ms(mixtures.mixtures, graph, untuned.matches, best_ms)
    costs = gather_costs(run, graph, found, backends, added, baseline_ms, known, apportioned)
    space = replace(costs.space, policy=run.config.policy)
    return replace(costs, space=space.costing(space.cost.for_sessions(sessions)))


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
    made = make_seeds(costs.space, answer_bounds(run), single.ms, corrections)
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
        Row(fall_back, (Stage.OTHER_SHAPES,), "fallbacks.json"),
        Row(Publisher, stored="best.collage"),
        Row(measure_baselines, (Stage.BASELINES,), "baselines.json", "backends.seconds"),
        Row(threads_that_pay, (Stage.THREADS,), "work/threads.json"),
        Row(normalise, (Stage.NORMALISE,), "work/normalised.json"),
        Row(on_normalised, (Stage.NORMALISED,), "work/single_backends_on_the_normalised_model.json"),
        Row(calibrated_ranges, (Stage.CALIBRATE,), "work/ranges.json", "accuracy.seconds"),
        Row(find_matches, (), "work/matches.json"),
        Row(transfer),
        Row(precision, (Stage.SENSITIVITIES,), "work/shares.json", "accuracy.seconds"),
        Row(early, (Stage.FAMILIES, Stage.EARLY), "work/early_mixtures.json"),
        Row(search_skipped, (), "work/search_skipped.json"),
        Row(tune_backends, (Stage.COSTS_BEFORE_TUNING, Stage.TUNE_KERNELS), "work/tuning.json"),
        Row(
            measured_costs,
            (Stage.COPIES, Stage.PROFILES, Stage.UNPROFILED, Stage.BORDERS),
            "work/costs.json",
            "costs.seconds",
        ),
        Row(seeds),
        Row(first_evaluated),
        Row(evolve, (Stage.SEARCH, Stage.TUNE_SEARCH), "checkpoint.json", "search.seconds"),
        Row(searched),
        Row(
            compared,
            (Stage.BUDGET_LEVELS, Stage.COMPILE, Stage.FINAL, Stage.HELD_OUT, Stage.VERIFY, Stage.OTHER_SPEED),
            RESULT,
            "final.seconds",
        ),
    )
)
"""All records of a run, in the order in which it makes them; each row needs records of rows before it only."""
WITHOUT_SEARCH = PLAN.replacing(Row(implied_costs, (), "work/costs.json"), Row(skipped_search, (), "checkpoint.json"))
"""Nothing is measured but what the mixtures need: costs are those that they were expected at."""


def picking(skipped: bool) -> Plan:
    """The plan that reads the search of a run that ended, and whether it ``skipped`` that."""
    return (WITHOUT_SEARCH if skipped else PLAN).replacing(Row(recalled_search, (), "checkpoint.json"))
