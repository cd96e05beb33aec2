"""How wrong the results of a run may be: decided once, by the configuration, the model's noise and its own score."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from collage_evo.accuracy.choose import load_metric
from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.samples import read_samples
from collage_evo.files import read_json, write_whole
from collage_evo.graph.prepare import PreparedModel
from collage_evo.run.context import Workplace

LIMITS = "limits.json"


def decide_limits(place: Workplace, model: PreparedModel) -> Limits:
    """The limits of a run whose samples are kept; those that it had, if it is resumed.

    Raises:
        InputError: the metric fails on the model's own outputs.
    """
    if (known := read_limits(place.work)) is not None:
        return known
    config, metric = place.config, place.config.accuracy.metric
    score = load_metric(metric).reference(read_samples(place.files.search)) if metric else None
    limits = Limits.decide(config.accuracy.budget, config.verify.tolerance, model.tolerance(0.0), bool(metric), score)
    if score is not None:
        place.reporter.say(f"the metric is {score:.4g} in float32, on the samples of the search")
    write_whole(place.work / LIMITS, json.dumps(asdict(limits)))
    return limits


def read_limits(work: Path) -> Limits | None:
    """The limits of the run with this work directory; None before they were decided.

    Raises:
        DamagedFile: they cannot be read.
    """
    return read_json(work / LIMITS, Limits) if (work / LIMITS).exists() else None
