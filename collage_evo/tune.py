"""``tune``: measures a model's costs and seeds, then lets Optuna tune the genetic search on what was learned."""

from __future__ import annotations

from pathlib import Path

from collage_evo.backends.select import require_device, select_backends
from collage_evo.config import Config
from collage_evo.fitness.baselines import best_single
from collage_evo.genome.seeds import make_seeds
from collage_evo.genome.tuning import open_study
from collage_evo.patterns.enumerate import enumerate_matches
from collage_evo.report.progress import Reporter
from collage_evo.report.study import Trials, read_trials, write_plots
from collage_evo.stages import Stages, tuning_storage


def run_tune(config: Config, directory: Path, reporter: Reporter) -> Trials:
    """Tune, write the chosen values into the directory's configuration, and plots; an interrupted one goes on.

    Raises:
        CollageError: bad input, configuration or a missing backend.
    """
    # A population's worth of placements is measured end to end: what is learned from them makes the targets.
    measured = {"tune": True, "evaluations": config.search.ga.population, "seconds": None}
    config = config.model_copy(update={"search": config.search.model_copy(update=measured)})
    require_device(config.target.device)
    backends = select_backends(config.backends.use, config.target.device)
    with Stages(config, directory, reporter) as stages:
        model = stages.prepare()
        baselines = stages.measure_baselines(backends)
        graph = stages.normalise(model).graph
        found = enumerate_matches(graph, backends, stages.setting.tolerance)
        costs = stages.measure_costs(graph, found, backends)
        stages.evolve(costs.space, make_seeds(costs.space), model, best_single(baselines))
    study = open_study(tuning_storage(directory))
    write_plots(study, directory)
    return read_trials(study)
