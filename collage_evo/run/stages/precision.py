"""Precision stage: calibrated ranges, losses of each operator in lower precisions, and which of these take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.backends.base import Backend
from collage_evo.backends.checks import numerics_in
from collage_evo.backends.enumerate import Matches
from collage_evo.backends.select import arithmetics_of
from collage_evo.backends.variants import Arithmetic, takes_part
from collage_evo.config import Config
from collage_evo.costs.unprofiled import guessed_ms
from collage_evo.errors import DamagedFile
from collage_evo.files import MADE_AGAIN, Stored
from collage_evo.graph.ir.graph import Graph, unions
from collage_evo.graph.prepare import SearchableModel
from collage_evo.hardware.slots import usable_cores
from collage_evo.precision.quantise.ranges import calibrate
from collage_evo.precision.quantise.rules import Range, Ranges
from collage_evo.precision.transforms.sensitivity import error_sensitivities
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.run.objectives import SHARES, Precision, Sensitivities
from collage_evo.run.records import Seconds
from collage_evo.run.stages.baselines import NormalisedBaselines
from collage_evo.run.stages.samples import SAMPLES, calibration_feeds
from collage_evo.run.store import Store
from collage_evo.run.transferred import Transfer

SHARED_SAMPLES = 64
"""Number of calibration samples on which operators are tried one at a time, if time allows."""
TRIED_MS, MOST_TIMES = 500.0, 2.0
"""A model that takes more ms in the fastest single backend has as many times more time for its trials, up to so many.
Chosen: a trial takes up to two runs, and 20 to 30 decide (docs/studies.md#operators-that-were-not-tried).
"""
RANGES = Stored("work/ranges.json", dict[str, Range])


@dataclass(frozen=True)
class Calibrated:
    """Ranges of the model's tensors over the calibration samples; None if no operator may run in int8."""

    ranges: Ranges | None


def calibrated_ranges(
    run: RunContext, model: SearchableModel, backends: Backends, seconds: Seconds
) -> dict[str, Range] | None:
    """Record the ranges, sorted by name; None if no operator may run in int8."""
    if not run.limits.front or not _quantises(run, model.graph, backends):
        return None
    with run.stage(Stage.CALIBRATE):
        ranges = calibrate(model.graph, calibration_feeds(run), len(usable_cores()), seconds)
    return dict(sorted(ranges.items()))


def _quantises(run: RunContext, graph: Graph, backends: Sequence[Backend]) -> bool:
    """Whether some variant of ``backends`` that takes part finds operators in ``graph`` to run in int8."""
    target, calibrated = run.setting.target, may_quantise(run.store, run.config)
    return any(
        takes_part(variant, target, run.limits.measured)
        and variant.arithmetic is Arithmetic.INT8
        and (calibrated or not variant.needs_ranges)
        and not backend.declines(variant)
        and numerics_in(graph, graph.all_nodes, variant)
        for backend in backends
        for variant in backend.variants
    )


def may_quantise(store: Store, config: Config) -> bool:
    """Whether int8 with calibrated ranges takes part: they come from the user's data, or made-up ones are allowed."""
    sampled = store.get(SAMPLES)
    return config.accuracy.int8_without_data or (sampled is not None and not sampled.random)


def predict_losses(
    run: RunContext,
    model: SearchableModel,
    of: Calibrated,
    found: Matches,
    transferred: Transfer,
    single: NormalisedBaselines,
    seconds: Seconds,
) -> Sensitivities | None:
    """Predict the loss of each operator in the precisions that matches offer for it, or take it from another run;
    None if they are all in float32."""
    wanted = unions(pair for match in found.matches for pair in arithmetics_of(match))
    if wanted.keys() <= {Arithmetic.FLOAT32}:
        return None
    if transferred.known and (known := transferred.known.sensitivities) is not None:
        return known
    times = min(single.ms.values(), default=0.0) / TRIED_MS if run.config.time is None else 1.0
    with run.stage(Stage.SENSITIVITIES):
        feeds, threads = calibration_feeds(run)[:SHARED_SAMPLES], len(usable_cores())
        limits = seconds * min(max(1.0, times), MOST_TIMES), wanted, guessed_ms(model.graph)
        return error_sensitivities(
            model.graph, of.ranges or {}, feeds, threads, *limits, budget=run.limits.budget
        )


def precision(sensitivities: Sensitivities | None, run: RunContext, model: SearchableModel) -> Precision:
    """Those ``sensitivities``; none if no lower precision takes part.

    Raises:
        DamagedFile: they are of another model.
    """
    nodes = len(model.graph.nodes)
    if sensitivities is not None and {nodes} != set(map(len, sensitivities.values())):
        raise DamagedFile(f"{run.store.path(SHARES)} is not of a model with {nodes} nodes: {MADE_AGAIN}")
    return Precision(sensitivities or {})
