"""Baselines: each single backend, the first answer, and the fallback for inputs of any other shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType

from collage_evo.answer import baselines
from collage_evo.answer.baselines import (
    Baseline,
    best_fallback,
    describe_fallback,
    measure_fallbacks,
    read_baselines,
    write_baselines,
)
from collage_evo.answer.delivery import Delivery
from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import whole_variants
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Fault
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.prepare import PreparedModel
from collage_evo.patterns.match import Placement, Region
from collage_evo.report.stage import Stage
from collage_evo.report.words import describe_failure, format_engine, format_ms, format_number
from collage_evo.run.context import RunContext
from collage_evo.run.stages.costs import CUT_TIMING
from collage_evo.run.stages.excluded_engines import known_ms
from collage_evo.runtime.manifest import is_sound
from collage_evo.runtime.signature import signature_of

FALLBACKS, FALLBACK_ARTIFACTS = "fallbacks.json", "fallbacks"
"""In a run directory: the measurements of the libraries that run inputs of any other shapes, and their artifacts."""
ON_NORMALISED = "single_backends_on_the_normalised_model"


@dataclass(frozen=True)
class Baselines:
    """Each single backend on the user's own model."""

    measured: tuple[Baseline, ...]


@dataclass(frozen=True)
class NormalisedBaselines:
    """The same, with latencies of the normalised model where the file's do not predict those of its parts."""

    measured: tuple[Baseline, ...]

    @cached_property
    def ms(self) -> dict[Engine, float]:
        """Latency of the whole model by engine: see :func:`known_ms`."""
        return known_ms(self.measured)


def measure_baselines(
    run: RunContext,
    backends: Sequence[Backend],
    on_measured: Callable[[Sequence[Baseline]], None] = lambda measured: None,
    far: Mapping[Engine, str] = MappingProxyType({}),
) -> tuple[Baseline, ...]:
    """Each single backend on the user's own model, saved in the run directory for a resumed run.

    ``on_measured`` is called with the results so far, after each. Those that are known to be ``far`` behind, and why,
    are not measured.
    """
    saved, directory = run.directory / "baselines.json", run.directory / "baselines"
    recorded = read_baselines(saved, directory, run.setting.target)
    target, largest = run.setting.target, run.limits.measured
    variants = {  # a last resort is measured rarely, and is then added
        backend.name: sum(not variant.last_resort for variant in whole_variants(backend, target, largest))
        for backend in backends
    }
    if recorded and {b.backend for b in recorded} == {name for name, count in variants.items() if count}:
        _mend(run, recorded)
        return recorded
    with run.stage(Stage.BASELINES, sum(variants.values())):
        timing, chosen = run.config.fitness.timing.settings(), run.config.backends
        seconds = math.inf if chosen.use else chosen.seconds  # backends that the user names are all measured

        def on_done(measured: Sequence[Baseline]) -> None:
            _report_baseline(run, measured[-1])
            on_measured(measured)

        measured = baselines.measure_baselines(backends, directory, run.machine, timing, on_done, seconds, far)
    write_baselines(saved, measured)
    return measured


def _mend(run: RunContext, recorded: Sequence[Baseline]) -> None:
    """Write artifacts again that were changed: one that lost a file, or whose file another artifact shares."""
    for one in recorded:
        if one.outcome.latency_ms is not None and not is_sound(one.artifact):
            run.reporter.log(f"{one.artifact} was changed or removed, so it is written again")
            backend = get_backend(one.backend)
            baselines.measure_one(backend, backend.variant(one.variant), one.artifact, run.machine)


def _report_baseline(run: RunContext, baseline: Baseline) -> None:
    latency, failure = baseline.outcome.latency_ms, baseline.outcome.failure
    name = format_engine(baseline.backend, baseline.variant)
    if failure is not None and failure.fault is Fault.NEEDLESS:
        pass  # a line would read like a failure
    elif latency is None:
        engine = (baseline.backend, baseline.variant)
        why = f"{name} has no time" if failure is None else describe_failure(failure, *engine)
        run.tell(why, failure.raw_text if failure is not None else "")
    else:
        parts = [f"{format_ms(latency)} ms", *([describe_failure(failure)] if failure is not None else [])]
        if not baseline.exact:
            over_text = "" if baseline.keeps(run.limits.budget) else ", exceeds the budget"
            parts.append(f"error {format_number(baseline.outcome.error)}{over_text}")
        run.reporter.log(f"{name}: {', '.join(parts)}")
    run.reporter.advance()


def fall_back(run: RunContext, model: PreparedModel, backends: Sequence[Backend]) -> Delivery:
    """Common parts of every answer of this run: the file's declarations, and the fallback for any other shapes."""
    signature = signature_of(model.dynamic or model.original, model.declared)
    if model.dynamic is None:
        return Delivery(run.directory, run.target, signature, None)
    saved, directory = run.directory / FALLBACKS, run.directory / FALLBACK_ARTIFACTS
    fallbacks = read_baselines(saved, directory, run.setting.target)
    if not fallbacks or not all(is_sound(one.artifact) for one in fallbacks if one.outcome.ok):
        with run.stage(Stage.OTHER_SHAPES):
            fallbacks = measure_fallbacks(backends, directory, run.machine)
        write_baselines(saved, fallbacks)
    best = best_fallback([fallbacks])
    run.reporter.log(describe_fallback(fallbacks, best))
    return Delivery(run.directory, run.target, signature, best.artifact if best else None)


def on_normalised(run: RunContext, graph: Graph, baselines: Sequence[Baseline]) -> tuple[Baseline, ...]:
    """``baselines`` with the latencies of the normalised model, ``graph``, if its signals are in rows and not in
    columns.

    The file's own times then do not predict those of its parts: for a pitch tracker OpenVINO in bfloat16 takes 90 ms,
    and 6.2 for the same in rows (Xeon with AMX). Libraries that compile for long have the file's times.
    """
    if not any(_makes_rows(graph, node) for node in graph.nodes):
        return tuple(baselines)
    measure = partial(_measured_ms, run, graph, baselines)
    normalised_ms = run.store.once(ON_NORMALISED, dict[str, float], measure)
    return tuple(_timed(b, normalised_ms[b.name]) if b.name in normalised_ms else b for b in baselines)


def _timed(baseline: Baseline, ms: float) -> Baseline:
    return replace(baseline, outcome=replace(baseline.outcome, latency_ms=ms, failure=None))


def _makes_rows(graph: Graph, node: Node) -> bool:
    """Whether it is the first operator that :class:`~collage_evo.graph.normalise.row_images.RowImages` wrote, or
    looks like it."""
    if node.op_type != "Reshape":
        return False
    shape, output_shape = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    return len(shape) == 4 and shape[3] == 1 < shape[2] and output_shape == (*shape[:2], 1, shape[2])


def _measured_ms(run: RunContext, graph: Graph, baselines: Sequence[Baseline]) -> dict[str, float]:
    """ms by the name of a baseline; without those that do not run the whole graph."""
    placements = {
        baseline.name: Placement((Region(graph.all_nodes, baseline.backend, baseline.variant),))
        for baseline in baselines
        if (backend := get_backend(baseline.backend)).runs_any_model(backend.variant(baseline.variant))
    }
    with run.stage(Stage.NORMALISED, len(placements)), run.machine.regions() as regions:
        outcomes = regions.placements(tuple(placements.values()), CUT_TIMING, run.machine.sessions)
    by_name = zip(placements, outcomes, strict=True)
    return {name: o.latency_ms for name, o in by_name if o is not None and o.latency_ms is not None}
