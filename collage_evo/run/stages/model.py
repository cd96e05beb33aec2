"""Model stages: from the user's file to a model that runs, and to one that is searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from collage_evo.accuracy.samples import Sample
from collage_evo.config import Config
from collage_evo.errors import InputError
from collage_evo.files import Stored
from collage_evo.fitness.jobs import WorkFiles
from collage_evo.fitness.references import RECORDED, nonfinite_references, read_recorded, write_references
from collage_evo.graph.convert.origin import Origin
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.values import Values, save_values
from collage_evo.graph.ir.weights import all_weight_bytes
from collage_evo.graph.load.files import read_model, save_linked
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import RANDOM_INPUTS, PreparedModel, SearchableModel, prepare_model, searchable
from collage_evo.hardware.slots import usable_cores
from collage_evo.report.stage import Stage
from collage_evo.run.context import Room, RunContext, Workplace
from collage_evo.run.stages.samples import SAMPLES, keep_samples, own_samples, random_samples, timed_samples

BEGUN = Stored("work/model.json", str)
"""The model's digest."""
ALL_RULES = "all"
NOTHING_FINITE = (
    "the model returns only NaN or infinity for these inputs, so errors are unknown and the answer is in float32: "
    "give your inputs with --data"
)


def prepare(place: Workplace, file: ModelFile) -> PreparedModel:
    """Read the model and compute reference outputs; write them and all samples for worker processes."""
    with place.stage(Stage.MODEL):
        config = place.config
        samples = own_samples(place, file)
        if shapes := place.open_shapes:
            model = run_open(config, file, (samples or random_samples(file.declared, shapes)).every)
            if samples is None:
                model = replace(model, notes=(*model.notes, RANDOM_INPUTS))
        else:
            feeds = [sample.feeds for sample in samples.search[: config.verify.inputs]] if samples else []
            model = run_once(config, file, feeds, config.verify.inputs)
        _require_same(place, model)
        if not reports_errors(model):
            model = replace(model, notes=(*model.notes, NOTHING_FINITE))
        lay_out(place, model)
        if config.verify.keeps_nonfinite:
            first, expected = model.references[0]
            names = (list(first), list(expected))
            spoiled = nonfinite_references(model.original, first, names, threads=len(usable_cores()))
            write_references(place.files.nonfinite, spoiled)
        place.store.once(SAMPLES, partial(keep_samples, place, model, samples))  # a resumed run has the same ones
    return model


def _require_same(place: Workplace, model: PreparedModel) -> None:
    """Require that ``model`` is the one that the run began with, on which all of its measurements are based.

    Raises:
        InputError: it is another.
    """
    begun = place.store.once(BEGUN, lambda: model.digest)
    if begun != model.digest:
        raise InputError(
            f"{place.config.model.source} differs from the model that the run in {place.directory} began with: "
            "restore that file to continue, or start over with run MODEL --overwrite"
        )


def run_once(
    config: Config, file: ModelFile, feeds: Sequence[Values], inputs: int = 1, is_open: bool = False
) -> PreparedModel:
    """The model in ``file`` with the shapes of ``config``, or open ones, run on ``feeds``, else on so many random
    ``inputs``."""
    return prepare_model(
        file,
        {} if is_open else config.model.one_profile(),
        inputs,
        threads=len(usable_cores()),
        feeds=feeds,
        any_shapes=config.model.sizes == "smallest",
        timeout_s=Room.of(config, all_weight_bytes(file.declared)).timeout_s,
        is_open=is_open,
    )


def run_open(config: Config, file: ModelFile, samples: Sequence[Sample]) -> PreparedModel:
    """The model in ``file`` with open shapes, run on those of ``samples`` that stand for all in a latency."""
    feeds, weights = timed_samples(samples)
    return replace(run_once(config, file, feeds, is_open=True), weights=weights)


def reports_errors(model: PreparedModel) -> bool:
    """Whether some output of ``model`` contains finite numbers: NaN and infinity only have no error."""
    values = [value for _, outputs in model.references for value in outputs.values()]
    floats = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind in "fc" and value.size]
    return len(floats) < len(values) or any(bool(np.isfinite(value).any()) for value in floats)


def lay_out(place: Workplace, model: PreparedModel) -> None:
    """Write the model and its reference outputs for worker processes."""
    save_linked(model.original, place.files.original)
    if model.dynamic is not None:
        save_linked(model.dynamic, place.files.dynamic)
    write_references(place.files.reference, model.references, model.weights)
    write_references(place.files.edges, model.edges)


@dataclass(frozen=True)
class Normalised:
    """Record of normalising a file with the digest ``of``, in addition to the model itself: see `SearchableModel`."""

    of: str
    normalisation_error: float
    rules: str
    origin: Origin

    def searchable(self, files: WorkFiles) -> SearchableModel:
        """The recorded model.

        Raises:
            DamagedFile: a file of it cannot be read.
        """
        graph, recorded = build_graph(read_model(files.normalised)), read_recorded(files.recorded)
        return SearchableModel(graph, self.normalisation_error, self.rules, recorded, self.origin)


NORMALISED = Stored("work/normalised.json", Normalised)


def normalise(run: RunContext, model: PreparedModel) -> SearchableModel:
    """Normalise the model for the search; a resumed run reads the recorded one.

    Raises:
        NotSearchable: it only runs whole.
    """
    recorded = run.store.get(NORMALISED)
    if recorded is not None and recorded.of == model.digest:
        return recorded.searchable(run.files)
    with run.stage(Stage.NORMALISE):
        normalised = searchable(model, threads=len(usable_cores()))
        save_linked(normalised.graph.model, run.files.normalised)
        save_values(run.files.recorded, {RECORDED: normalised.recorded})
    if normalised.rules != ALL_RULES:
        run.reporter.log(f"the model is simplified only as far as its outputs stay the same: {normalised.rules}")
    record = Normalised(model.digest, normalised.normalisation_error, normalised.rules, normalised.origin)
    run.store.put(NORMALISED, record)
    return normalised
