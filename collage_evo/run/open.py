"""Opening of a run: its backends, its prepared model, its error limits, and its machine, as a context."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

from collage_evo.accuracy.budget import EXACT
from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.samples import read_samples
from collage_evo.config import Config, SearchConfig
from collage_evo.digests import DIGESTS, remembering
from collage_evo.files import Stored
from collage_evo.fitness.sandbox import expect_workers
from collage_evo.graph.ir.weights import all_weight_bytes
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import PreparedModel
from collage_evo.hardware.presence import Lookout
from collage_evo.hardware.private import machine_directory
from collage_evo.hardware.processor import level, this_machine
from collage_evo.hardware.slots import describe_quota
from collage_evo.report.progress import Reporter
from collage_evo.report.stage import Stage
from collage_evo.run.budget import USUAL_S
from collage_evo.run.context import RunContext, Workplace
from collage_evo.run.deadline import pause
from collage_evo.run.directory import require_records, require_same_target
from collage_evo.run.machine import require_processor
from collage_evo.run.samples import model_file
from collage_evo.run.stages.model import prepare, reports_errors
from collage_evo.run.stages.samples import with_noise_of_samples

LIMITS = Stored("work/limits.json", Limits)
"""The error limits, which a run decides once."""


@contextlib.contextmanager
def open_run(
    config: Config, directory: Path, reporter: Reporter, file: ModelFile | None = None
) -> Iterator[tuple[RunContext, PreparedModel]]:
    """The run in ``directory`` with its model prepared; the exit of the context ends the worker processes.

    ``file``: the user's model, if the caller has parsed it already.

    Raises:
        CollageError: the model cannot be used, or the configuration asks for something that is not there.
    """
    require_processor(config)
    place = Workplace(config, directory, reporter)
    require_records(directory)
    require_same_target(directory, config)
    place.work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place.work / DIGESTS, ignore_errors=True)  # since the last process anybody may have written
    with Lookout(machine_directory(), place.name, reporter.log, pause), remembering(place.work / DIGESTS):
        reporter.expect(_known_seconds(config.search))
        if config.fitness.executor == "local":
            expect_workers()
        model = prepare(place, file or model_file(config))
        run = RunContext.at(place, decide_limits(place, model), all_weight_bytes(model.original))
        lesser = f"times are of {this_machine().cpu}: confirm them on a processor of that kind" if level() else ""
        for note in filter(None, (describe_quota(), run.machine.warning, lesser, *model.notes)):
            reporter.log(note)
        try:
            yield run, model
        finally:
            run.machine.close()


def _known_seconds(search: SearchConfig) -> dict[Stage, float]:
    """Duration of the search stage, if a time limit bounds it."""
    seconds = search.seconds or USUAL_S
    return {Stage.SEARCH: seconds} if search.evaluations is None and math.isfinite(seconds) else {}


def decide_limits(place: Workplace, model: PreparedModel) -> Limits:
    """The limits of a run whose samples are saved; a resumed run reads the recorded ones.

    Raises:
        InputError: the metric fails on the model's own outputs.
    """
    return place.store.once(LIMITS, lambda: _decided(place, model))


def _decided(place: Workplace, model: PreparedModel) -> Limits:
    config, metric = place.config, place.config.accuracy.metric
    asked = config.accuracy.budget if reports_errors(model) else EXACT
    chosen = load_metric(metric, sha256=place.metric_sha256) if metric else None
    score = chosen.reference(read_samples(place.files.search)) if chosen else None
    if score is not None:
        place.reporter.log(f"the metric is {score:.4g} in float32, on the samples of the search")
    excused = with_noise_of_samples(place, model).excused
    limits = Limits.decide(asked, config.verify.tolerance, excused, bool(metric), score)
    for note in limits.notes():
        place.reporter.log(note)
    return limits
