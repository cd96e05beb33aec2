"""A run, top to bottom: model, baselines, graph, matches, costs, seeds, evolution, artifact, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.backends.select import require_device, require_tuners, select_backends
from collage_evo.config import Config
from collage_evo.errors import ConfigError, NotSearchable
from collage_evo.fitness.final.baselines import Baseline, best_single, latencies
from collage_evo.fitness.outcome import Objective
from collage_evo.genome.search.seeds import Seeds, make_seeds
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.report.finished import result_in
from collage_evo.report.html import write_html
from collage_evo.report.progress import Reporter
from collage_evo.report.result import RESULT, SCHEMA, Result, write_result
from collage_evo.run.carry import Carried
from collage_evo.run.context import RunContext
from collage_evo.run.delivery import MODEL, Delivery
from collage_evo.run.front import feasible_baselines
from collage_evo.run.kernel_tuning import Tuned
from collage_evo.run.like import Earlier, begin_like
from collage_evo.run.open import open_run
from collage_evo.run.result import NotSearched, Searched, assemble_result
from collage_evo.run.saved_costs import MeasuredCosts
from collage_evo.run.search import Found, named
from collage_evo.run.stages.answer import answer_speeds, compile_candidates, decide, deliver
from collage_evo.run.stages.costs import gather_costs, tune_backends
from collage_evo.run.stages.evolve import evolve
from collage_evo.run.stages.held_out import hold_out
from collage_evo.run.stages.left_out import known_ms
from collage_evo.run.stages.libraries import measure_libraries
from collage_evo.run.stages.matches import find_matches
from collage_evo.run.stages.model import normalise
from collage_evo.run.stages.precision import calibrated_ranges, predict_losses
from collage_evo.run.stages.singles import deliver_first, fall_back, measure_baselines
from collage_evo.target.target import CPU


def run_pipeline(config: Config, directory: Path, reporter: Reporter) -> Result:
    """Find, compile and verify the fastest placement of a model.

    A model that runs whole but cannot be searched gets the best single backend, and the result says why.

    Args:
        config: everything the run needs.
        directory: the run directory; what an interrupted run left there is used.
        reporter: hears how far the run is.

    Returns:
        What is also written to ``result.json``; ``best.collage`` is the artifact.

    Raises:
        CollageError: bad input or a missing backend; the message says what to do.
    """
    backends = chosen_backends(config)
    config, earlier = begin_like(config, reporter)
    with open_run(config, directory, reporter) as (run, model):
        begun = begin(run, model, backends, earlier)
        searched: Searched | NotSearched
        try:
            explored = explore(run, begun.model, begun.baselines, backends, earlier)
            found = evolve(run, explored.costs.space, explored.seeds, begun.model, begun.baselines)
            searched = explored.searched(found)
        except NotSearchable as reason:
            searched = NotSearched(str(reason))
        if (before := _unchanged(begun, searched)) is not None:
            run.reporter.say("nothing new was measured: the answer stays")
            return before
        return conclude(run, begun, searched)


def _unchanged(begun: Begun, searched: Searched | NotSearched) -> Result | None:
    """The result of a run that ended and has measured no placement since, if it is one."""
    before = result_in(begun.delivery.directory) if begun.delivery.answered else None
    if before is None or before.schema != SCHEMA:
        return None
    now = searched.found.state.evaluations if isinstance(searched, Searched) else 0
    return before if now == (before.search.evaluations if before.search else 0) else None


def conclude(run: RunContext, begun: Begun, searched: Searched | NotSearched) -> Result:
    """From what was found to the answer that keeps to the run's limits, raced and checked.

    An answer that is already where ``begun.delivery`` says takes part in the race, and stays unless it is beaten.
    Where no placement keeps to them, the best backend alone is the answer. The result is written beside the answer.

    Raises:
        InputError: no placement could be compiled again, no baseline survived the race, or the answer is wrong.
    """
    baselines = feasible_baselines(begun.baselines, run.limits)
    candidates: Mapping[str, Path] = {}
    answered = begun.delivery.answered
    if isinstance(searched, Searched):
        searched = searched.finalists(run.limits, run.config.final.finalists, answered)
        if searched.found.ranked:
            candidates = compile_candidates(run, searched.costs.space, searched.found)
        keys = {placement.key: name for name, placement in named(searched.found.ranked).items()}
        answered = keys.get(answered, answered)
    exact = [baseline for baseline in begun.baselines if baseline.exact and baseline.keeps(run.limits.budget)]
    first = decide(run, candidates, baselines, answered)
    verdict, held_out = hold_out(run, begun.model, first, candidates, baselines, exact, answered)
    told = {**held_out.info(run.setting), MODEL: {"name": begun.model.name, "sha256": begun.model.digest}}
    answer = deliver(run, verdict, candidates, begun.baselines, begun.delivery, told)
    libraries = measure_libraries(run, verdict, answer.artifact, begun.baselines, held_out.broke)
    speeds = answer_speeds(run, verdict, answer)
    result = assemble_result(
        run, begun.model, searched, begun.baselines, verdict, answer, held_out, speeds, libraries
    )
    write_result(begun.delivery.directory / RESULT, result)
    write_html(begun.delivery.directory / "report.html", result)
    return result


def answer_first(config: Config, directory: Path, reporter: Reporter) -> None:
    """Give the best single backend out, and leave what :func:`run_pipeline` goes on with. Raises as it does."""
    backends = chosen_backends(config)
    config, earlier = begin_like(config, reporter)
    with open_run(config, directory, reporter) as (run, model):
        begin(run, model, backends, earlier)


def measure_and_tune(config: Config, directory: Path, reporter: Reporter) -> None:
    """The pipeline up to a first population, on which the search's own settings are tuned. Raises as a run does."""
    backends = chosen_backends(config)
    with open_run(config, directory, reporter) as (run, model):
        begun = begin(run, model, backends)
        explored = explore(run, begun.model, begun.baselines, backends)
        evolve(run, explored.costs.space, explored.seeds, begun.model, begun.baselines)


@dataclass(frozen=True)
class Begun:
    """A model with a first answer."""

    model: PreparedModel
    baselines: tuple[Baseline, ...]
    delivery: Delivery


@dataclass(frozen=True)
class Explored:
    """What the search chooses from, and where it begins."""

    model: SearchableModel
    tuned: Sequence[Tuned]
    costs: MeasuredCosts
    seeds: Seeds

    def searched(self, found: Found) -> Searched:
        """With what a search found in it."""
        return Searched(self.model, self.tuned, self.costs, self.seeds, found)


def chosen_backends(config: Config) -> tuple[Backend, ...]:
    """The backends that take part. Raises as :func:`run_pipeline` does."""
    if config.search.objective == "throughput" and config.target.device != CPU:
        raise ConfigError(
            f"search.objective: throughput is of the processor's cores, not of {config.target.device}: leave it at "
            "latency, or set target.device=cpu"
        )
    require_device(config.target.device)
    backends = select_backends(config.backends.use, config.target.device, config.target.threads)
    require_tuners(backends, config.backends.trials)
    return backends


def begin(
    run: RunContext, model: PreparedModel, backends: Sequence[Backend], earlier: Earlier | None = None
) -> Begun:
    """Measure each backend alone, give the best of them out. Raises as :func:`run_pipeline` does.

    Backends that were far behind in an ``earlier`` run like this one are not measured.
    """
    if run.config.search.objective == "throughput":
        run.reporter.say(f"times are the machine's for a run, with {run.sessions} session(s) at once")
    delivery = fall_back(run, model, backends)

    def deliver_best(found: Sequence[Baseline]) -> None:
        if any(baseline.keeps(run.limits.budget) for baseline in found):
            deliver_first(run, best_single(found, run.limits.budget), delivery)

    baselines = measure_baselines(run, backends, deliver_best, earlier.far if earlier else {})
    deliver_first(run, best_single(baselines, run.limits.budget), delivery)
    return Begun(model, baselines, delivery)


def explore(
    run: RunContext,
    model: PreparedModel,
    baselines: Sequence[Baseline],
    backends: Sequence[Backend],
    earlier: Earlier | None = None,
) -> Explored:
    """What can be placed where at what cost; by what an ``earlier`` run like this one measured, if there is one.

    Raises:
        NotSearchable: the model only runs whole.
    """
    normalised = normalise(run, model)
    graph = normalised.graph
    carried = Carried.of(earlier.run, graph) if earlier else None
    ranges = calibrated_ranges(run, normalised)
    found = find_matches(run, normalised, model.digest, baselines, backends, ranges)
    if carried is not None:
        carried.write_shares(run.store)
    precision = predict_losses(run, normalised, ranges, found.matches)
    tuning = tune_backends(run, graph, found, backends)
    sessions = run.whole.setting.sessions  # of several, baselines have a share of the machine's time
    alone = {engine: ms * sessions for engine, ms in latencies(baselines).items()}
    if carried is not None:
        carried.write_costs(run, tuning.matches, precision)
    costs = gather_costs(run, graph, tuning.matches, backends, precision, alone)
    costs = replace(costs, space=costs.space.costing(costs.space.cost.for_sessions(sessions)))
    seeds = make_seeds(costs.space, bounds={Objective.ERROR: run.limits.budget}, alone=known_ms(baselines))
    if carried is not None:
        seeds = carried.seeds(costs.space, seeds)
    return Explored(normalised, tuning.tuned, costs, seeds)
