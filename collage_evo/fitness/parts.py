"""Checking and timing of regions in a worker process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from collage_evo.backends.profiled import HasProfiler
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import exact_arithmetic
from collage_evo.fitness.cold_caches import Flush
from collage_evo.fitness.jobs import CostJob, KernelsJob, KernelTimes, Measured
from collage_evo.fitness.kernels import kernels_of
from collage_evo.fitness.references import nonfinite_references, read_recorded
from collage_evo.fitness.timing import region_timer, timeout_s, warm_timer, watchdog
from collage_evo.fitness.worker_context import WorkerContext
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.static import is_random
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.patterns.match import Region
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import ATTEMPTS, Timing

MOST_TIMED_MS = 250.0
"""Of a region that takes longer the profiler's own time is no share, and it is not timed without it. Chosen."""
VAIN_SHARE, VAIN_LEAST = 0.25, 3
"""If more matches than this stay contended in every repeat, later ones are timed once, because repeats do not
help."""


class Parts:
    """The part of a worker process that checks and times regions standalone."""

    def __init__(self, context: WorkerContext) -> None:
        self._context, self._judge = context, context.judge
        self._costs = self._contended_costs = 0

    @cached_property
    def _recorded(self) -> dict[str, Any]:
        return read_recorded(self._context.setting.files.recorded)

    @cached_property
    def _flush(self) -> Flush:
        return Flush(self._context.target.threads)

    def cost(self, job: CostJob) -> Measured:
        """Check a region against its reference, and time it."""
        region, context = job.region, self._context
        context.expect_any_backend()
        program = self._program(region)
        model = extract(context.graph, region.nodes)
        bound = math.inf if is_random(model.graph.node) else self._judge.bound(exact_arithmetic(region))
        feeds = self._feeds(model, program)
        expected = plain(reference_outputs(model, feeds, context.target.threads))
        named = dict(zip(program.inputs, feeds.values(), strict=True))
        with Session([program], context.target) as session:
            with watchdog(timeout_s(job.give_up_ms, session.clock)):
                outputs = session.run(None, named)
            error = relative_error(plain(outputs), expected)
            self._judge.accept(session, named, error, bound)
            self._keep_nonfinite(session, model, feeds)
            session.feed(named)
            timer = region_timer(session, job, context.graph, named, lambda: self._flush)
            context.exclusive.acquire_exclusive()
            in_vain = self._contended_costs > max(VAIN_LEAST, VAIN_SHARE * self._costs)
            timing = context.uncontended(session, timer, job.timing, 1 if in_vain else ATTEMPTS)
            self._costs += 1
            self._contended_costs += timing.contended
            last = relative_error([plain(session.read(name)) for name in program.outputs], expected)
            self._judge.accept(session, named, last, bound, f" (after {timing.n} runs)")
        return Measured(timing.times_ms, error.relative, error.max_abs, contended=timing.contended)

    def kernels(self, job: KernelsJob) -> KernelTimes:
        """Profile a region's kernels with its library's profiler, and time the region without it."""
        region, context = job.region, self._context
        context.expect_any_backend()
        program = self._program(region)
        inputs = list(self._feeds(extract(context.graph, region.nodes), program).values())
        backend, (piece,) = get_backend(region.backend), program.pieces
        assert isinstance(backend, HasProfiler)
        context.exclusive.acquire_exclusive()
        variant = backend.variant(piece.variant)
        kernel_times = backend.profile(piece.directory, context.target, variant, inputs, job.seconds)
        timing = Timing((sum(kernel.ms for kernel in kernel_times),))
        if timing.median_ms < MOST_TIMED_MS:
            with Session([program], context.target) as session:
                session.run(None, dict(zip(program.inputs, inputs, strict=True)))
                timing = context.uncontended(session, warm_timer(session, job.timing), job.timing, 1)
        kernels = kernels_of(context.graph, region, context.compiler.model(context.graph, region), kernel_times)
        return KernelTimes(tuple(kernels), timing.times_ms, timing.contended)

    def _program(self, region: Region) -> Program:
        graph = self._context.graph
        piece = self._context.compiler.region(graph, region)
        names = (*piece.inputs, *piece.outputs)
        return Program((piece,), piece.inputs, piece.outputs, {n: graph.tensors[n] for n in names})

    def _feeds(self, model: onnx.ModelProto, program: Program) -> dict[str, np.ndarray]:
        """Values for the inputs of a region's ``model``: those of the first reference run, else random ones."""
        names = {value.name: name for value, name in zip(model.graph.input, program.inputs, strict=False)}
        recorded = {inner: self._recorded[name] for inner, name in names.items() if name in self._recorded}
        tensors = self._context.graph.tensors
        shapes = {inner: tensors[name].shape for inner, name in names.items() if tensors[name].varies}
        return random_inputs(model, seed=1, shapes=shapes, values=recorded)

    def _keep_nonfinite(self, session: Session, model: onnx.ModelProto, feeds: Mapping[str, Any]) -> None:
        """Raise Failed if a piece, a region's ``model``, loses NaN or infinity that must be preserved."""
        if self._context.setting.keeps_nonfinite:
            names = (session.program.inputs, session.program.outputs)
            references = nonfinite_references(model, feeds, names, self._context.target.threads)
            self._judge.keep_nonfinite(session, references)
