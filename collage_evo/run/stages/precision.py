"""Precision stage: calibrated ranges, losses of each operator in lower precisions, and which of these take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.backends.base import Backend
from collage_evo.backends.checks import numerics_in
from collage_evo.backends.select import arithmetics_of
from collage_evo.backends.variants import Arithmetic, takes_part
from collage_evo.config import Config
from collage_evo.files import MADE_AGAIN, reading
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.graph.prepare import SearchableModel
from collage_evo.hardware.slots import usable_cores
from collage_evo.patterns.match import Match
from collage_evo.precision.quantise.ranges import calibrate, read_ranges, write_ranges
from collage_evo.precision.quantise.rules import Ranges
from collage_evo.precision.transforms.sensitivity import error_sensitivities
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.machine import Backends
from collage_evo.run.objectives import Precision
from collage_evo.run.stages.samples import SAMPLES, Sampled, calibration_feeds
from collage_evo.run.store import Store

SHARES = "shares"
SHARED_SAMPLES = 64
"""Number of calibration samples on which operators are tried one at a time, if time allows."""
Sensitivities = dict[Arithmetic, tuple[float, ...]]


FLOAT32 = Precision()
"""No lower precision takes part."""


@dataclass(frozen=True)
class Calibrated:
    """Ranges of the model's tensors over the calibration samples; None if no operator may run in int8."""

    ranges: Ranges | None


def calibrated_ranges(run: RunContext, model: SearchableModel, backends: Backends) -> Calibrated:
    """They are saved: a resumed run searches the same space."""
    if not run.limits.front:
        return Calibrated(None)
    path = run.files.ranges
    if not path.exists():
        if not _quantises(run, model.graph, backends):
            return Calibrated(None)
        with run.stage(Stage.CALIBRATE):
            threads = len(usable_cores())
            write_ranges(path, calibrate(model.graph, calibration_feeds(run), threads, run.config.accuracy.seconds))
    return Calibrated(read_ranges(path))


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
    sampled = store.get(SAMPLES, Sampled)
    return config.accuracy.int8_without_data or (sampled is not None and not sampled.random)


def predict_losses(
    run: RunContext,
    model: SearchableModel,
    ranges: Ranges | None,
    matches: Sequence[Match],
    transferred: Sensitivities | None = None,
) -> Precision:
    """Predict the loss of each operator in the precisions that ``matches`` offer for it. Saved like the ranges.

    ``transferred``: from another run, in place of measurements.
    """
    wanted: dict[Arithmetic, NodeSet] = {}
    for match in matches:
        for kind, nodes in arithmetics_of(match):
            wanted[kind] = wanted.get(kind, 0) | nodes
    if wanted.keys() <= {Arithmetic.FLOAT32}:
        return FLOAT32

    def lost() -> Sensitivities:
        with run.stage(Stage.SENSITIVITIES):
            feeds, threads = calibration_feeds(run)[:SHARED_SAMPLES], len(usable_cores())
            return error_sensitivities(model.graph, ranges or {}, feeds, threads, run.config.accuracy.seconds, wanted)

    run.store.once(SHARES, Sensitivities, lost if transferred is None else lambda: transferred)
    return read_sensitivities(run.store, len(model.graph.nodes))


def read_sensitivities(store: Store, nodes: int) -> Precision:
    """The saved sensitivities of a model of so many nodes.

    Raises:
        DamagedFile: the file's content is something else.
    """
    with reading(store.path(SHARES), MADE_AGAIN):
        sensitivities = store.get(SHARES, Sensitivities) or {}
        if {nodes} != set(map(len, sensitivities.values())):
            raise ValueError(f"it is not of a model with {nodes} nodes")
        return Precision(sensitivities)
