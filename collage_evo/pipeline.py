"""A run, top to bottom: model, baselines, graph, matches, costs, seeds, evolution, artifact, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage_evo.assemble import Searched, assemble_result
from collage_evo.backends.base import Backend
from collage_evo.backends.select import require_device, require_tuners, select_backends
from collage_evo.config import Config
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
    require_device(config.target.device)
    backends = select_backends(config.backends.use)
    require_tuners(backends, config.backends.trials)
    with Stages(config, directory, reporter) as stages:
        model = stages.prepare()
        baselines = stages.measure_baselines(backends)
        single = best_single(baselines)
        delivery = stages.fall_back(model, backends)
        stages.deliver_first(single, delivery)
        found = _search(stages, model, backends, single)
        candidates = found.candidates if isinstance(found, _Found) else {}
        searched = found.searched if isinstance(found, _Found) else found
        verdict = stages.decide(candidates, baselines)
        answer = stages.deliver(verdict, candidates, baselines, delivery)
        result = assemble_result(stages, model, searched, baselines, verdict, answer)
    write_result(directory / "result.json", result)
    write_html(directory / "report.html", result)
    return result


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
