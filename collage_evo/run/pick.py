"""The answer of a finished run for another budget, of what its search measured.

It is a resumed run whose search is not gone on with: model, baselines, matches and costs come from the run directory,
placements from the checkpoint, and ``conclude`` gets other limits and another place. The configuration is the run's
own, because what may take part decides what genomes mean.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from collage_evo.accuracy.budget import budget_option
from collage_evo.config import Config
from collage_evo.errors import InputError, NotSearchable
from collage_evo.report.places import PICKED
from collage_evo.report.progress import Reporter
from collage_evo.report.summary import Finished
from collage_evo.run.open import open_run
from collage_evo.run.pipeline import Begun, chosen_backends, conclude, explore
from collage_evo.run.profiles import FOLDER, with_shapes
from collage_evo.run.recorded import ended_run
from collage_evo.run.result import NotSearched, Searched
from collage_evo.run.samples import kept_profiles
from collage_evo.run.search import found_before
from collage_evo.run.stages.evolve import fingerprint_of
from collage_evo.run.stages.singles import fall_back, measure_baselines


def pick_answer(directory: Path, budget: str, reporter: Reporter) -> Finished:
    """Of what the run in ``directory`` measured, compile, race and check the answer for ``budget``.

    The stages before the search are those of a resumed run, and find what they gave in the run directory; nothing is
    searched. The answer, its result and report go to ``picked/BUDGET`` there; those of the run stay as they are.

    Args:
        directory: of a run that ended.
        budget: the largest error or drop of the metric, as ``accuracy.budget`` has it.
        reporter: hears how far it is.

    Raises:
        InputError: no such run, it has not ended, or what it measured is gone or of another machine.
        ConfigError: ``budget`` is none.
    """
    asked, config = budget_option(budget), _finished(directory)
    shapes = kept_profiles(config, directory)[0]
    config = with_shapes(config, shapes)
    place = directory / PICKED / budget.strip()
    backends = chosen_backends(config)
    with open_run(config, directory, reporter) as (run, model):
        limits = run.limits.with_budget(asked)
        if limits.measured < limits.budget:
            reporter.say(f"the run measured errors up to {limits.measured:g} only: its budget was smaller")
        baselines = measure_baselines(run, backends)
        begun = Begun(model, baselines, replace(fall_back(run, model, backends), directory=place))
        searched: Searched | NotSearched
        try:
            explored = explore(run, model, baselines, backends)
        except NotSearchable as reason:
            searched = NotSearched(str(reason))
        else:
            space = explored.costs.space
            searched = explored.searched(found_before(space, directory, fingerprint_of(run, space, model)))
        place.mkdir(parents=True, exist_ok=True)
        return Finished(shapes, conclude(run.within(limits), begun, searched), place)


def _finished(directory: Path) -> Config:
    """The configuration of the run of one profile in ``directory``, which has ended."""
    config = ended_run(directory)
    if (directory / FOLDER).is_dir():
        raise InputError(f"{directory} has several profiles: give the directory of one, as {directory / FOLDER}/0")
    if not (directory / "work").is_dir():
        raise InputError(f"{directory}/work is gone, with the costs that the search was made on: run it again")
    return config
