"""``tune``: measures a model's costs and seeds, then lets Optuna tune the genetic search on what was learned."""

from __future__ import annotations

import math
from pathlib import Path

from collage_evo.config import Config
from collage_evo.genome.hyper.tuning import open_study
from collage_evo.report.progress import Reporter
from collage_evo.report.study import Trials, read_trials, write_plots
from collage_evo.run.flow import Flow, evaluate
from collage_evo.run.stages.evolve import tuning_storage


def run_tune(config: Config, directory: Path, reporter: Reporter) -> Trials:
    """Tune, write the chosen values into the directory's configuration, and plots; an interrupted one goes on.

    Raises:
        CollageError: bad input, configuration or a missing backend.
    """
    # A population's worth of placements is measured end to end: what is learned from them makes the targets.
    measured = {"tune": True, "evaluations": config.search.ga.population, "seconds": math.inf}
    config = config.model_copy(update={"search": config.search.model_copy(update=measured)})
    evaluate(config, directory, reporter, Flow.search)
    study = open_study(tuning_storage(directory))
    write_plots(study, directory)
    return read_trials(study)
