"""A run, top to bottom: model -> graph -> matches -> tuning -> costs -> seeds -> evolution -> artifact -> report."""

from __future__ import annotations

from pathlib import Path

from collage_evo.assemble import assemble_result
from collage_evo.backends.select import require_device, require_tuners, select_backends
from collage_evo.config import Config
from collage_evo.fitness.baselines import best_single
from collage_evo.genome.seeds import make_seeds
from collage_evo.patterns.enumerate import enumerate_matches
from collage_evo.report.html import write_html
from collage_evo.report.progress import Reporter
from collage_evo.report.result import Result, write_result
from collage_evo.stages import Stages


def run_pipeline(config: Config, directory: Path, reporter: Reporter) -> Result:
    """Find, compile and verify the fastest placement of a model.

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
        found = enumerate_matches(model.graph, backends, config.verify.tolerance)
        baselines = stages.measure_baselines(backends)
        single = best_single(baselines)
        tuning = stages.tune_backends(model, found, backends)
        costs = stages.measure_costs(model, tuning.matches, backends, single.outcome.pace_ms)
        seeds = make_seeds(costs.space)
        search = stages.evolve(costs.space, seeds, model, single)
        candidates = stages.compile(costs.space, search)
        verdict = stages.decide(candidates, baselines)
        answer = stages.deliver(verdict, candidates, baselines)
        result = assemble_result(stages, model, tuning.tuned, costs, seeds, search, baselines, verdict, answer)
    write_result(directory / "result.json", result)
    write_html(directory / "report.html", result)
    return result
