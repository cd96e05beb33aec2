"""Main loop of a worker process, which reads jobs as JSON lines and has a part for each kind answer them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from collage_evo.accuracy.judge import Judgement
from collage_evo.backends.registry import get_backend, on_host, register_from
from collage_evo.backends.tuning import Tunable
from collage_evo.codec import from_json, to_json
from collage_evo.digests import DIGESTS, remembering
from collage_evo.errors import OF_THE_MACHINE, CannotLoad, CollageError, InputError, system_message
from collage_evo.fitness.jobs import (
    REGIONS,
    Answer,
    ArtifactJob,
    Begin,
    BuildJob,
    Compiled,
    CopyJob,
    CostJob,
    FallbackJob,
    Inherits,
    Job,
    JudgeJob,
    KernelsJob,
    Measured,
    Message,
    OpenJob,
    PlacementJob,
    ProfileJob,
    ReloadJob,
    SampleBatchesJob,
    SampleJob,
    TimedJob,
    TimeJob,
    TraceJob,
    TunedKernels,
    TuneJob,
    Waits,
    WholeJob,
    Written,
)
from collage_evo.fitness.judging import all_exact
from collage_evo.fitness.open_artifact import OpenArtifacts
from collage_evo.fitness.parts import Parts
from collage_evo.fitness.whole_models import WholeModels
from collage_evo.fitness.worker_context import WorkerContext
from collage_evo.genome.failure import Failed, Failure, Fault
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.weights import inlined
from collage_evo.patterns.match import Placement
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.manifest import EXACT


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Answer the jobs of one connection, whose first line contains the setting and the cores.

    Whatever a job raises is a failure.
    """
    begin = from_json(jobs.readline(), Begin)
    if begin.cores:
        os.sched_setaffinity(0, begin.cores)
    register_from(begin.setting.registered)

    def answer(message: Message) -> None:
        answers.write(to_json(message, Message) + "\n")
        answers.flush()

    context = WorkerContext(
        begin.setting, begin.cores, waiting=lambda: answer(Waits()), on_inherited=lambda key: answer(Inherits(key))
    )
    worker = Worker(context)
    answer(Waits())  # the timeout of the job starts here: importing registered backends may take seconds
    with remembering(Path(begin.setting.work) / DIGESTS):
        for line in jobs:
            job = from_json(line, Job)
            try:
                with context.exclusive.job() if isinstance(job, TimedJob) else nullcontext():
                    answered = worker.handlers[type(job)](job)
            except Exception as error:  # a backend may raise anything, also over a file that is not what it seems
                answered = failure_of(error)
            answer(answered)


class Worker:
    """The parts that run jobs, one job after the other, each with sessions of its own."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        parts, whole_models, artifacts = Parts(context), WholeModels(context), OpenArtifacts(context)
        self.handlers: Mapping[type[Job], Callable[[Any], Answer]] = {
            BuildJob: self._build,
            TuneJob: self._tune,
            ArtifactJob: self._write,
            CopyJob: self._copy,
            JudgeJob: self._judge,
            CostJob: parts.cost,
            KernelsJob: parts.kernels,
            PlacementJob: whole_models.placement,
            WholeJob: whole_models.baseline,
            FallbackJob: whole_models.fallback,
            OpenJob: artifacts.open,
            TimeJob: artifacts.time,
            ReloadJob: artifacts.reload,
            SampleBatchesJob: artifacts.batches,
            SampleJob: artifacts.on_sample,
            ProfileJob: artifacts.profile,
            TraceJob: artifacts.trace,
        }

    def _build(self, job: BuildJob) -> Compiled:
        context, began_s = self._context, processor_s()
        context.expect_any_backend()
        # A compilation for an accelerator may run there, which must not affect a process that times on it.
        hosted = on_host(*job.region.family)
        with context.exclusive.compiling() if hosted else context.exclusive.job():
            context.compiler.region(context.graph, job.region)
        return Compiled(processor_s() - began_s)

    def _tune(self, job: TuneJob) -> TunedKernels:
        backend = get_backend(job.backend)
        if not isinstance(backend, Tunable):
            raise InputError(f"backend {job.backend} has nothing to tune")
        model = inlined(extract(self._context.graph, job.nodes))
        return TunedKernels(backend.tuner().tune(model, self._context.target, Path(job.records), job.trials))

    def _write(self, job: ArtifactJob) -> Written:
        self._context.expect_any_backend()
        placement = Placement(job.regions)
        with self._context.exclusive.compiling():  # a search may be timing meanwhile
            program = self._context.compiler.placement(self._context.graph, placement)
            info = {**job.info, REGIONS: job.regions, EXACT: all_exact(placement)}
            write_artifact(Path(job.artifact), [Profile(program, info)], self._context.target)
        return Written()

    def _copy(self, job: CopyJob) -> Measured:
        accelerator = self._context.target.served_by
        self._context.exclusive.acquire_exclusive()
        return Measured(accelerator.time_copies(job.nbytes, job.there, job.runs), 0.0, 0.0)

    def _judge(self, job: JudgeJob) -> Judgement:
        with load_artifact(Path(job.artifact), proven=True) as session:
            judge, samples = self._context.judge, Path(job.samples)
            judgement = judge.closely(session, samples)
            return replace(judgement, invariance=judge.invariance(session, samples)) if job.moves else judgement


def failure_of(error: Exception) -> Failure:
    """The failure of a job that raised ``error``."""
    match error:
        case Failed():
            return error.failure
        case MemoryError() if isinstance(error, CollageError):
            return Failure(Fault.MEMORY, str(error))
        case CollageError() if not isinstance(error, CannotLoad):
            return Failure(Fault.REFUSED, str(error))
        case OSError() if error.errno in OF_THE_MACHINE:
            return Failure(Fault.SYSTEM, system_message(error))
    cause = (isinstance(error, CannotLoad) and error.__cause__) or error
    detail = f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
    # Libraries that allocate an accelerator's memory raise errors of their own, which share these words.
    memory = isinstance(cause, MemoryError) or "out of memory" in detail.lower()
    return Failure(Fault.MEMORY if memory else Fault.RAISED, detail=detail)


def processor_s() -> float:
    """Processor seconds of this process so far, and of the child processes that it waited for."""
    return sum(os.times()[:4])
