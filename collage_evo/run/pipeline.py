"""A run, top to bottom: model, baselines, graph, matches, costs, seeds, evolution, artifact, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.select import require_device, require_tuners, select_backends
from collage_evo.config import Config
from collage_evo.errors import NotSearchable
from collage_evo.fitness.final.baselines import Baseline, best_single
from collage_evo.genome.search.seeds import Seeds, make_seeds
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.report.html import write_html
from collage_evo.report.progress import Reporter
from collage_evo.report.result import Result, write_result
from collage_evo.run.context import RunContext
from collage_evo.run.delivery import Delivery
from collage_evo.run.kernel_tuning import Tuned
from collage_evo.run.result import Searched, assemble_result
from collage_evo.run.stages.answer import compile_candidates, decide, deliver
from collage_evo.run.stages.costs import MeasuredCosts, gather_costs, tune_backends
from collage_evo.run.stages.evolve import evolve
from collage_evo.run.stages.model import normalise, prepare
from collage_evo.run.stages.singles import deliver_first, fall_back, measure_baselines


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
    backends = _backends(config)
    with RunContext(config, directory, reporter) as run:
        begun = _begin(run, backends)
        candidates: Mapping[str, Path] = {}
        searched: Searched | str
        try:
            explored = _explore(run, begun.model, backends)
        except NotSearchable as reason:
            searched = str(reason)
        else:
            found = evolve(run, explored.costs.space, explored.seeds, begun.model, begun.single)
            candidates = compile_candidates(run, explored.costs.space, found)
            searched = Searched(explored.model, explored.tuned, explored.costs, explored.seeds, found)
        verdict = decide(run, candidates, begun.baselines)
        answer = deliver(run, verdict, candidates, begun.baselines, begun.delivery)
        result = assemble_result(run, begun.model, searched, begun.baselines, verdict, answer)
    write_result(directory / "result.json", result)
    write_html(directory / "report.html", result)
    return result


def answer_first(config: Config, directory: Path, reporter: Reporter) -> None:
    """Give the best single backend out, and leave what :func:`run_pipeline` goes on with. Raises as it does."""
    with RunContext(config, directory, reporter) as run:
        _begin(run, _backends(config))


def measure_and_tune(config: Config, directory: Path, reporter: Reporter) -> None:
    """The pipeline up to a first population, on which the search's own settings are tuned. Raises as a run does."""
    backends = _backends(config)
    with RunContext(config, directory, reporter) as run:
        begun = _begin(run, backends)
        explored = _explore(run, begun.model, backends)
        evolve(run, explored.costs.space, explored.seeds, begun.model, begun.single)


@dataclass(frozen=True)
class _Begun:
    """A model with a first answer."""

    model: PreparedModel
    baselines: tuple[Baseline, ...]
    single: Baseline
    delivery: Delivery


@dataclass(frozen=True)
class _Explored:
    """What the search chooses from, and where it begins."""

    model: SearchableModel
    tuned: Sequence[Tuned]
    costs: MeasuredCosts
    seeds: Seeds


def _backends(config: Config) -> tuple[Backend, ...]:
    require_device(config.target.device)
    backends = select_backends(config.backends.use, config.target.device)
    require_tuners(backends, config.backends.trials)
    return backends


def _begin(run: RunContext, backends: Sequence[Backend]) -> _Begun:
    model = prepare(run)
    delivery = fall_back(run, model, backends)

    def deliver_best(found: Sequence[Baseline]) -> None:
        if any(baseline.keeps(run.setting.budget) for baseline in found):
            deliver_first(run, best_single(found, run.setting.budget), delivery)

    baselines = measure_baselines(run, backends, on_usual=deliver_best)
    single = best_single(baselines, run.setting.budget)
    deliver_first(run, single, delivery)
    return _Begun(model, baselines, single, delivery)


def _explore(run: RunContext, model: PreparedModel, backends: Sequence[Backend]) -> _Explored:
    """What can be placed where at what cost.

    Raises:
        NotSearchable: the model only runs whole.
    """
    normalised = normalise(run, model)
    graph = normalised.graph
    found = enumerate_matches(graph, backends, run.setting.tolerance, run.setting.target.device)
    tuning = tune_backends(run, graph, found, backends)
    costs = gather_costs(run, graph, tuning.matches, backends)
    return _Explored(normalised, tuning.tuned, costs, make_seeds(costs.space))
