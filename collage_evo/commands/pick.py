"""``pick``: the answer of a finished run for another budget, from its search and a few more placements.

The configuration is the run's own, because the enabled backends decide what genomes mean.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collage_evo.accuracy.budget import budget_option
from collage_evo.answer.delivery import Delivery
from collage_evo.config import Config
from collage_evo.errors import InputError
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.finished import Finished
from collage_evo.report.places import PICKED
from collage_evo.report.progress import Reporter
from collage_evo.report.result import Result
from collage_evo.run.budget import SEARCH_SKIPPED
from collage_evo.run.context import RunContext
from collage_evo.run.directory import require_trusted
from collage_evo.run.evaluate import found_by, open_records
from collage_evo.run.final import with_mixtures
from collage_evo.run.plan import picking
from collage_evo.run.profiles import FOLDER, with_shapes
from collage_evo.run.recorded import ended_run
from collage_evo.run.samples import model_file, saved_shapes
from collage_evo.run.search import Found, Searched
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.store import Store


def pick_answer(directory: Path, budget: str, reporter: Reporter, trust: bool = False) -> Finished:
    """Compile, race and check the answer for ``budget`` from what the run in ``directory`` measured, and new budget
    levels.

    The answer, its result and report go to ``picked/BUDGET`` there; those of the run stay unchanged.

    Args:
        directory: of a run that ended.
        budget: the largest error or drop of the metric, in the format of ``accuracy.budget``.
        reporter: receives progress.
        trust: use what the run and its directory name, whoever wrote them.

    Raises:
        InputError: no such run, it has not ended, its measurements are gone or from another machine, or it is from
            elsewhere: see :func:`~collage_evo.run.directory.require_trusted`.
        ConfigError: ``budget`` is invalid.
    """
    # the run already contains what it took over
    asked, config = budget_option(budget), _finished(directory).replacing("search", like=None)
    require_trusted(directory, config, trust)
    place, file = directory / PICKED / budget.strip(), model_file(config)
    (shapes, *_) = saved_shapes(config, directory, file).profiles

    plan = picking(skipped=Store(directory).get(SEARCH_SKIPPED) or False)
    with open_records(with_shapes(config, shapes), directory, reporter, file, plan) as records:
        found, limits = found_by(lambda: records[Searched]), records[RunContext].limits.with_budget(asked)
        if limits.measured < limits.budget:
            reporter.log(f"the run measured errors up to {limits.measured:g} only: its budget was smaller")
        run = records[RunContext].within(limits)
        if isinstance(found, Searched):
            found = with_mixtures(run, records[PreparedModel], records[Baselines], found, limits.budget)
        place.mkdir(parents=True, exist_ok=True)
        delivery = replace(records[Delivery], directory=place)
        result = records.having({RunContext: run, Found: found, Delivery: delivery})[Result]
    return Finished(shapes, result, place)


def _finished(directory: Path) -> Config:
    """The configuration of the run of one profile in ``directory``, which has ended."""
    config = ended_run(directory)
    if (directory / FOLDER).is_dir():
        raise InputError(f"{directory} has several profiles: give the directory of one, as {directory / FOLDER}/0")
    if not (directory / "work").is_dir():
        raise InputError(f"pick needs the costs in {directory}/work, which is missing: run the search again")
    return config
