"""Search stage: the genetic search of a run, on measured latency."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace

from collage_evo.answer.baselines import Baseline, best_single
from collage_evo.backends.registry import get_backend
from collage_evo.config import Settings
from collage_evo.costs.saved_costs import MeasuredCosts
from collage_evo.fitness.machine import PlacementEvaluator, ReferenceArtifact, TimingRule
from collage_evo.genome.encoding import decode
from collage_evo.genome.failure import Fault
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.prepare import PreparedModel
from collage_evo.patterns.match import Placement
from collage_evo.report.stage import Stage
from collage_evo.report.words import format_ms
from collage_evo.run.budget import Pace, search_budget
from collage_evo.run.context import RunContext
from collage_evo.run.directory import reopen_run, save_config, target_of
from collage_evo.run.objectives import front_bounds, search_bounds
from collage_evo.run.publisher import Publisher
from collage_evo.run.search import FirstEvaluated, SearchRecord, recorded_search, run_search
from collage_evo.run.stages.baselines import Baselines
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.ranking import ranked
from collage_evo.search.evolution.seeds import Seeds
from collage_evo.search.evolution.state import Evaluated, SearchState, new_state

TUNE_DB = "tune.db"
"""Optuna's storage of the tuning in a run directory."""


def evolve(
    run: RunContext,
    costs: MeasuredCosts,
    seeds: Seeds,
    model: PreparedModel,
    baselines: Baselines,
    publisher: Publisher,
    evaluated: FirstEvaluated,
) -> SearchRecord:
    """The genetic search on measured latency, and on error where matches differ in it; from the checkpoint if there
    is one.

    The reference is the best of ``baselines`` in float32, even if another is faster: otherwise the exact end of the
    front would be given up. The ``publisher`` publishes placements that are faster than the answer so far.
    """
    search, space = run.config.search, costs.space
    spent_s = time.monotonic() - run.begin
    pace = pace_of(run, baselines, len(evaluated))
    budget = search_budget(run.store, search, spent_s, run.seconds, pace.most_s, pace)
    start = _start(run, space, baselines, evaluated)
    reference = decode(next(iter(seeds))[1], space)
    with (
        measuring(run, reference, baselines) as evaluator,
        run.stage(Stage.SEARCH, budget.seconds or budget.evaluations),
        publisher.following(evaluator, space),
    ):
        for earlier in evaluated.values():
            evaluator.race_against(earlier.outcome)
        fingerprint = fingerprint_of(run, space, model)
        tuner = (lambda state: _tune(run, space, seeds, state, budget)) if search.tune else None
        record = run_search(
            space, seeds, evaluator, search.ga, budget, run.directory, fingerprint, run.reporter, tuner, start=start
        )
    failed = (outcome.failure for outcome in record.outcomes.values() if outcome.failure)
    failures = {str(failure) for failure in failed if failure.fault is not Fault.FAR_BEHIND}
    run.keep_details(f"a placement that the search tried\n    {failure}" for failure in sorted(failures))
    return record


def skipped_search(
    run: RunContext, costs: MeasuredCosts, model: PreparedModel, baselines: Baselines, evaluated: FirstEvaluated
) -> SearchRecord:
    """The record of a search that measured nothing more than ``evaluated``, saved as its checkpoint."""
    state = _start(run, costs.space, baselines, evaluated)
    checkpoint.save(run.directory, state, fingerprint_of(run, costs.space, model))
    return SearchRecord(ranked(state, costs.space), state)


def recalled_search(run: RunContext, costs: MeasuredCosts, model: PreparedModel) -> SearchRecord:
    """What an earlier process of the run measured. Nothing is measured."""
    return recorded_search(costs.space, run.directory, fingerprint_of(run, costs.space, model))


def pace_of(run: RunContext, baselines: Sequence[Baseline], early: int) -> Pace:
    """The pace of measurements, by the best of ``baselines`` and the number of ``early`` mixtures."""
    return Pace(_best_ms(baselines) / 1e3, run.seconds.get(Stage.EARLY, 0.0) / max(1, early))


def _start(
    run: RunContext, space: SearchSpace, baselines: Sequence[Baseline], evaluated: Mapping[str, Evaluated]
) -> SearchState:
    """The state of a search before its first generation."""
    state = new_state(run.config.search.ga.seed)
    if space.terms:
        corner = (_give_up_ms(run, baselines), *front_bounds(run).values())  # hypervolume is measured from here
        state = new_state(run.config.search.ga.seed, search_bounds(run), corner)
    times = {key: result.outcome.latency_ms for key, result in evaluated.items()}
    keys = tuple(key for _, key in sorted((ms, key) for key, ms in times.items() if ms is not None))
    return replace(state, evaluated=evaluated, population=keys, hall=keys)


def measuring(
    run: RunContext, agreed_on: Placement, baselines: Sequence[Baseline], on_all_samples: bool = False
) -> AbstractContextManager[PlacementEvaluator]:
    """An evaluator of placements, on all workers that agree on ``agreed_on``, relative to the best of
    ``baselines``; ``on_all_samples``: also of those that are slow or err too much."""
    single = best_single(baselines, run.limits.budget)
    assert single.outcome.latency_ms is not None

    def on_worker(worker: str, latency_ms: float, agrees: bool) -> None:
        left = "" if agrees else ", so it is left out"
        run.reporter.log(f"{worker} takes {format_ms(latency_ms)} ms for the same model{left}")

    rule = TimingRule(
        run.config.fitness.timing.settings(),
        _give_up_ms(run, baselines),
        ReferenceArtifact(single.artifact.absolute(), single.outcome.latency_ms),
        search_bounds(run),
        on_all_samples,
    )
    return run.machine.placements(rule, agreed_on, run.config.fitness.margin, on_worker)


def _give_up_ms(run: RunContext, baselines: Sequence[Baseline]) -> float:
    """Latency above which timing is aborted."""
    return run.config.fitness.give_up * _best_ms(baselines)


def _best_ms(baselines: Sequence[Baseline]) -> float:
    latency = best_single(baselines).outcome.latency_ms
    assert latency is not None
    return latency


def _tune(run: RunContext, space: SearchSpace, seeds: Seeds, state: SearchState, budget: Budget) -> GaSettings:
    """Settings that Optuna tunes on the measurements so far, written into the saved configuration too."""
    from collage_evo.search.tuning.tuning import TunePlan, tune  # Optuna is slow to import

    tuning = run.config.tune
    plan = TunePlan(tuning.trials, tuning.seconds, tuning.evaluations, tuning.targets)
    with run.stage(Stage.TUNE_SEARCH, tuning.trials):
        chosen = tune(
            space,
            seeds,
            state,
            plan,
            run.directory / TUNE_DB,
            tuning.space,
            run.config.search.ga,
            lambda best: run.reporter.advance(1, f"at best {best:.3f} of the time it began with"),
        )
    save_config(run.directory, reopen_run(run.directory).replacing("search", ga=Settings(**asdict(chosen))))
    run.reporter.stage(Stage.SEARCH, budget.seconds or budget.evaluations)
    return chosen


def fingerprint_of(run: RunContext, space: SearchSpace, model: PreparedModel) -> Fingerprint:
    """Fingerprint of this run's search, for its checkpoint."""
    return Fingerprint(
        model=model.digest[:16],
        target=target_of(run.config),
        backends=tuple(sorted({_versioned(*engine) for engine in space.engines})),
        matches=space.digest,
        objective=run.config.search.objective,
        policy=run.config.policy.text,
    )


def _versioned(name: str, variant: str) -> str:
    backend = get_backend(name)
    return f"{name} {backend.version_of(backend.variant(variant))}"
