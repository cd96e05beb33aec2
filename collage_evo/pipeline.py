"""A run, top to bottom: model, baselines, graph, matches, costs, seeds, evolution, artifact, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage_evo.assemble import Searched, assemble_result
from collage_evo.backends.base import Backend
from collage_evo.backends.select import require_device, require_tuners, select_backends
from collage_evo.config import Config
from collage_evo.delivery import Delivery
from collage_evo.errors import NotSearchable
from collage_evo.fitness.baselines import Baseline, best_single
from collage_evo.genome.seeds import make_seeds
from collage_evo.graph.prepare import PreparedModel
from collage_evo.patterns.enumerate import enumerate_matches
from collage_evo.report.html import write_html
from collage_evo.report.progress import Reporter
from collage_evo.report.result import Result, write_result
from collage_evo.stages import Stages


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
    with Stages(config, directory, reporter) as stages:
        begun = _begin(stages, backends)
        found = _search(stages, begun.model, backends, begun.single)
        candidates = found.candidates if isinstance(found, _Found) else {}
        searched = found.searched if isinstance(found, _Found) else found
        verdict = stages.decide(candidates, begun.baselines)
        answer = stages.deliver(verdict, candidates, begun.baselines, begun.delivery)
        result = assemble_result(stages, begun.model, searched, begun.baselines, verdict, answer)
    write_result(directory / "result.json", result)
    write_html(directory / "report.html", result)
    return result


def answer_first(config: Config, directory: Path, reporter: Reporter) -> None:
    """Give the best single backend out, and leave what :func:`run_pipeline` goes on with. Raises as it does."""
    with Stages(config, directory, reporter) as stages:
        _begin(stages, _backends(config))


@dataclass(frozen=True)
class _Begun:
    """A model with a first answer."""

    model: PreparedModel
    baselines: tuple[Baseline, ...]
    single: Baseline
    delivery: Delivery


def _backends(config: Config) -> tuple[Backend, ...]:
    require_device(config.target.device)
    backends = select_backends(config.backends.use, config.target.device)
    require_tuners(backends, config.backends.trials)
    return backends


def _begin(stages: Stages, backends: Sequence[Backend]) -> _Begun:
    model = stages.prepare()
    delivery = stages.fall_back(model, backends)

    def deliver(found: Sequence[Baseline]) -> None:
        if any(baseline.outcome.latency_ms is not None for baseline in found):
            stages.deliver_first(best_single(found), delivery)

    baselines = stages.measure_baselines(backends, on_usual=deliver)
    single = best_single(baselines)
    stages.deliver_first(single, delivery)
    return _Begun(model, baselines, single, delivery)


@dataclass(frozen=True)
class _Found:
    """What the search found, and its likeliest placements as artifacts."""

    searched: Searched
    candidates: Mapping[str, Path]


def _search(stages: Stages, model: PreparedModel, backends: Sequence[Backend], single: Baseline) -> _Found | str:
    """The search; or the reason why the model only runs whole."""
    try:
        normalised = stages.normalise(model)
        graph = normalised.graph
        found = enumerate_matches(graph, backends, stages.setting.tolerance)
        tuning = stages.tune_backends(graph, found, backends)
        costs = stages.measure_costs(graph, tuning.matches, backends)
        seeds = make_seeds(costs.space)
    except NotSearchable as reason:
        return str(reason)
    search = stages.evolve(costs.space, seeds, model, single)
    candidates = stages.compile(costs.space, search)
    return _Found(Searched(normalised, tuning.tuned, costs, seeds, search), candidates)
