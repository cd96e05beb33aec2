"""Limits stage: error limits of a run, decided once from the configuration, the model's noise and its own score."""

from __future__ import annotations

from collage_evo.accuracy.budget import EXACT
from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.samples import read_samples
from collage_evo.graph.prepare import PreparedModel
from collage_evo.run.context import Workplace
from collage_evo.run.stages.model import reports_errors

LIMITS = "limits"


def decide_limits(place: Workplace, model: PreparedModel) -> Limits:
    """The limits of a run whose samples are saved; a resumed run reads the recorded ones.

    Raises:
        InputError: the metric fails on the model's own outputs.
    """
    return place.store.once(LIMITS, Limits, lambda: _decided(place, model))


def _decided(place: Workplace, model: PreparedModel) -> Limits:
    config, metric = place.config, place.config.accuracy.metric
    asked = config.accuracy.budget if reports_errors(model) else EXACT
    score = load_metric(metric).reference(read_samples(place.files.search)) if metric else None
    if score is not None:
        place.reporter.log(f"the metric is {score:.4g} in float32, on the samples of the search")
    limits = Limits.decide(asked, config.verify.tolerance, model.excused, bool(metric), score)
    for note in limits.notes():
        place.reporter.log(note)
    return limits
