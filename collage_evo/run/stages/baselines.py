"""Baselines: each single backend, the first answer, and the fallback for inputs of any other shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from collage_evo.answer import baselines
from collage_evo.answer.baselines import (
    Baseline,
    best_fallback,
    best_single,
    describe_fallback,
    measure_fallbacks,
    out_of_time,
    read_baselines,
    write_baselines,
)
from collage_evo.answer.delivery import Delivery
from collage_evo.backends.base import UNCHECKED
from collage_evo.backends.capabilities import closed_reason, refuses_shapes
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import whole_variants
from collage_evo.errors import UnavailableError
from collage_evo.files import Stored
from collage_evo.genome.cost_model import Engine
from collage_evo.genome.failure import Failure, Fault
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.prepare import PreparedModel, SearchableModel
from collage_evo.patterns.match import Placement, Region
from collage_evo.pruning import EARLIER_RUN
from collage_evo.report.stage import Stage
from collage_evo.report.words import describe_failure, format_engine, format_ms, format_number
from collage_evo.run.budget import BASELINES_SHARE
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import seconds_left
from collage_evo.run.machine import Backends
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Seconds
from collage_evo.run.stages.costs import CUT_TIMING
from collage_evo.run.stages.excluded_engines import known_ms
from collage_evo.run.warm_start import WarmStart
from collage_evo.runtime.manifest import is_sound
from collage_evo.runtime.signature import signature_of

FALLBACKS, FALLBACK_ARTIFACTS = "fallbacks.json", "fallbacks"
"""In a run directory: the measurements of the libraries that run inputs of any other shapes, and their artifacts."""
RECORDED, ARTIFACTS = "baselines.json", "baselines"
"""In a run directory: the measurements of the single backends, and their artifacts."""
ON_NORMALISED = Stored("work/single_backends_on_the_normalised_model.json", dict[str, float])


class Baselines(tuple[Baseline, ...]):
    """Each single backend on the user's own model."""


class NormalisedBaselines(tuple[Baseline, ...]):
    """The same, with latencies of the normalised model where the file's do not predict those of its parts."""

    @property
    def ms(self) -> dict[Engine, float]:
        """Latency of the whole model by engine: see :func:`known_ms`."""
        return known_ms(self)


def measure_baselines(
    run: RunContext, model: PreparedModel, backends: Backends, warm: WarmStart, publisher: Publisher, seconds: Seconds
) -> Baselines:
    """Each single backend on the user's own model, saved in the run directory for a resumed run.

    The ``publisher`` publishes the best so far at once. Those that are known to be far behind are not measured.

    Raises:
        InputError: there was no time to measure one that does.
        UnavailableError: none runs the model within the budget.
    """
    if run.config.search.objective == "throughput":
        run.reporter.log(f"times are the machine's for a run, with {run.machine.sessions} session(s) at once")
    far = {engine: Failure(Fault.KNOWN, why, rule=EARLIER_RUN.name) for engine, why in warm.far.items()}
    if model.unchecked:
        others = (backend for backend in backends if not backend.gives_reference)
        unchecked = Failure(Fault.KNOWN, UNCHECKED)
        far |= {(one.name, variant.name): unchecked for one in others for variant in one.variants}
    measured = Baselines(_recorded(run, backends) or _measured(run, backends, publisher, far, seconds))
    best_single(measured, run.limits.budget)  # without one there is no run
    publisher.offer_baselines(measured)
    return measured


def _recorded(run: RunContext, backends: Backends) -> Sequence[Baseline]:
    """The recorded ones, mended; none if other backends were measured, or time was over before an answer."""
    recorded = read_baselines(run.directory / RECORDED, run.directory / ARTIFACTS, run.setting.target)
    there = {name for name, variants in _variants(run, backends).items() if variants}
    if {baseline.backend for baseline in recorded} != there or out_of_time(recorded, run.limits.budget):
        return ()
    for one in recorded:
        if one.outcome.latency_ms is not None and not is_sound(one.artifact):
            run.reporter.log(f"{one.artifact} was changed or removed, so it is written again")
            backend = get_backend(one.backend)
            baselines.measure_one(backend, backend.variant(one.variant), one.artifact, run.machine)
    return recorded


def _variants(run: RunContext, backends: Backends) -> dict[str, int]:
    """Number of variants by backend. A last resort is measured rarely, and is then added."""
    target, largest = run.setting.target, run.limits.measured
    return {
        backend.name: sum(not variant.last_resort for variant in whole_variants(backend, target, largest))
        for backend in backends
    }


def _measured(
    run: RunContext, backends: Backends, publisher: Publisher, far: Mapping[Engine, Failure], seconds: float
) -> Sequence[Baseline]:
    with run.stage(Stage.BASELINES, sum(_variants(run, backends).values())):
        timing = run.config.fitness.timing.settings()
        seconds = math.inf if run.config.backends.use else seconds  # backends that the user names are all measured

        def on_done(measured: Sequence[Baseline]) -> None:
            _report_baseline(run, measured[-1])
            publisher.offer_baselines(measured)

        directory, most_s = run.directory / ARTIFACTS, BASELINES_SHARE * seconds_left()
        measured = baselines.measure_baselines(
            backends, directory, run.machine, timing, on_done, seconds, far, most_s
        )
    write_baselines(run.directory / RECORDED, measured)
    return measured


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


def fall_back(run: RunContext, model: PreparedModel, backends: Backends) -> Delivery:
    """Common parts of every answer of this run: the file's declarations, and the fallback for any other shapes.

    Raises:
        UnavailableError: a library that takes part refuses no shapes, and none that does could be the fallback.
    """
    signature = signature_of(model.dynamic or model.original, model.declared)
    unsure = [one for one in backends if run.open_shapes and not (closed_reason(one) or refuses_shapes(one))]
    if model.dynamic is None and not unsure:
        return Delivery(run.directory, run.target, signature, None)
    saved, directory = run.directory / FALLBACKS, run.directory / FALLBACK_ARTIFACTS
    fallbacks = read_baselines(saved, directory, run.setting.target)
    if not fallbacks or not all(is_sound(one.artifact) for one in fallbacks if one.outcome.ok):
        with run.stage(Stage.OTHER_SHAPES):
            fallbacks = measure_fallbacks(backends, directory, run.machine)
        write_baselines(saved, fallbacks)
    best = best_fallback([fallbacks])
    described = describe_fallback(fallbacks, best, first=model.dynamic is None)
    if unsure and best is None:  # no session would load an answer with its pieces
        raise UnavailableError(f"{described}, as {unsure[0].title} needs: run without it (backends.use)")
    run.reporter.log(described)
    every = [{name: np.shape(value) for name, value in feeds.items()} for feeds, _ in model.references if unsure]
    # A window is along one axis, so the least size of each is enough: no reference need have all.
    least = {name: np.min([one[name] for one in every], axis=0).tolist() for name in (every[0] if every else ())}
    return Delivery(run.directory, run.target, signature, best.artifact if best else None, least)


def on_normalised(ms: dict[str, float] | None, baselines: Baselines) -> NormalisedBaselines:
    """``baselines`` with the latencies ``ms``, by name."""
    return NormalisedBaselines(_timed(b, ms[b.name]) if ms and b.name in ms else b for b in baselines)


def _timed(baseline: Baseline, ms: float) -> Baseline:
    return replace(baseline, outcome=replace(baseline.outcome, latency_ms=ms, failure=None))


def _makes_rows(graph: Graph, node: Node) -> bool:
    """Whether it is the first operator that :class:`~collage_evo.graph.normalise.row_images.RowImages` wrote, or
    looks like it."""
    if node.op_type != "Reshape":
        return False
    shape, output_shape = (graph.tensors[name].shape for name in (node.inputs[0], node.outputs[0]))
    return len(shape) == 4 and shape[3] == 1 < shape[2] and output_shape == (*shape[:2], 1, shape[2])


def ms_on_normalised(run: RunContext, model: SearchableModel, baselines: Baselines) -> dict[str, float] | None:
    """Latencies of the normalised ``model``, ms by the name of a baseline, if its signals are in rows and not in
    columns; without those that do not run the whole graph.

    The file's own times then do not predict those of its parts: for a pitch tracker OpenVINO in bfloat16 takes 90 ms,
    and 6.2 for the same in rows (Xeon with AMX). Libraries that compile for long have the file's times.
    """
    graph = model.graph
    if not any(_makes_rows(graph, node) for node in graph.nodes):
        return None
    placements = {
        baseline.name: Placement((Region(graph.all_nodes, baseline.backend, baseline.variant),))
        for baseline in baselines
        if (backend := get_backend(baseline.backend)).runs_any_model(backend.variant(baseline.variant))
    }
    with run.stage(Stage.NORMALISED, len(placements)), run.machine.regions() as regions:
        outcomes = regions.placements(tuple(placements.values()), CUT_TIMING, run.machine.sessions)
    by_name = zip(placements, outcomes, strict=True)
    return {name: o.latency_ms for name, o in by_name if o is not None and o.latency_ms is not None}
