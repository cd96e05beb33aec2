"""Opens a run: its model prepared, and its measuring processes, which end when it is left."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

from collage_evo.config import Config, SearchConfig
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.progress import Reporter
from collage_evo.run.budget import USUAL_S
from collage_evo.run.context import RunContext, Workplace, usable
from collage_evo.run.stages.limits import decide_limits
from collage_evo.run.stages.model import prepare
from collage_evo.target.presence import Lookout
from collage_evo.target.private import machine_directory


@contextlib.contextmanager
def open_run(config: Config, directory: Path, reporter: Reporter) -> Iterator[tuple[RunContext, PreparedModel]]:
    """The run in ``directory`` with its model prepared; leaving it ends the measuring processes.

    Raises:
        InputError: the model cannot be used, or what the configuration asks for is not there.
    """
    usable(config)
    place = Workplace(config, directory, reporter)
    place.work.mkdir(parents=True, exist_ok=True)
    with Lookout(machine_directory(), place.name, reporter.say):
        reporter.expect(_known_seconds(config.search))
        model = prepare(place)
        run = RunContext.at(place, decide_limits(place, model))
        if warning := run.pool.executor.warning:
            reporter.say(warning)
        for note in model.notes:
            reporter.say(note)
        try:
            yield run, model
        finally:
            run.pool.close()


def _known_seconds(search: SearchConfig) -> dict[str, float]:
    """What the stage of the search will take, where its time bounds it."""
    seconds = search.seconds or USUAL_S
    return {"search": seconds} if search.evaluations is None and math.isfinite(seconds) else {}
