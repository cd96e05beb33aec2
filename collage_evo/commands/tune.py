"""``tune``: measures a model's costs and seeds, then Optuna tunes the genetic search on simulated targets."""

from __future__ import annotations

import math
from pathlib import Path

from collage_evo.config import Config
from collage_evo.files import Stored
from collage_evo.report.progress import Reporter
from collage_evo.report.study import Trials, read_trials, write_plots
from collage_evo.run.at_work import at_work
from collage_evo.run.directory import telling_to_resume
from collage_evo.run.evaluate import open_records
from collage_evo.run.search import Searched
from collage_evo.run.stages.evolve import TUNE_DB
from collage_evo.run.store import Store
from collage_evo.search.tuning.tuning import open_study

MEASURED = Stored("work/tuned_on.json", int)
"""How many placements are measured."""


def run_tune(config: Config, directory: Path, reporter: Reporter) -> Trials:
    """Tune, write the chosen values into the directory's configuration, and plots; an interrupted tuning continues.

    Raises:
        CollageError: bad input, configuration or a missing backend.
    """
    # A population's worth of placements is measured end to end, and the simulated targets are fitted to them. A
    # continued tuning uses the same number: the population in the configuration is then the chosen one.
    with at_work(directory), telling_to_resume(directory):
        count = Store(directory).once(MEASURED, lambda: config.search.ga.population)
        config = config.replacing("search", tune=True, evaluations=count, seconds=math.inf)
        with open_records(config, directory, reporter) as records:
            _ = records[Searched]
        study = open_study(directory / TUNE_DB)
        write_plots(study, directory)
        return read_trials(study)
