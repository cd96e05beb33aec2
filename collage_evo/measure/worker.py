"""Jobs of a worker process: each is done by the part that knows how, and repeated once without inherited pieces."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from collage_evo.accuracy.judge import Judgement
from collage_evo.backends.base import BuildFailure
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.tuning import Tunable
from collage_evo.devices.device import OutOfDeviceMemory
from collage_evo.devices.open import open_device
from collage_evo.errors import OF_THE_MACHINE, CannotLoad, CollageError, InputError, system_message
from collage_evo.graph.convert.extract import extract
from collage_evo.measure.jobs import (
    REGIONS,
    Answer,
    ArtifactJob,
    BuildJob,
    Compiled,
    CopyJob,
    CostJob,
    FallbackJob,
    Job,
    JudgeJob,
    KernelsJob,
    Measured,
    OpenJob,
    PlacementJob,
    ProfileJob,
    ReloadJob,
    SampleBatchesJob,
    Setting,
    TimedJob,
    TimeJob,
    TunedKernels,
    TuneJob,
    WholeJob,
    Written,
)
from collage_evo.measure.judging import EXACT, all_exact
from collage_evo.measure.open_artifact import OpenArtifacts
from collage_evo.measure.parts import Parts
from collage_evo.measure.timing import time_copies
from collage_evo.measure.whole_models import WholeModels
from collage_evo.measure.worker_context import WorkerContext, unbuilt
from collage_evo.patterns.match import Placement
from collage_evo.placement.failure import Failure, Fault
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.target.target import CPU


class Worker:
    """Runs jobs one after the other, each with sessions of its own.

    ``waiting`` is called while it waits for others; ``on_inherited`` is called with each piece of another run before
    its use.
    """

    def __init__(
        self,
        setting: Setting,
        cores: tuple[int, ...],
        waiting: Callable[[], None] = lambda: None,
        on_inherited: Callable[[str], None] = lambda key: None,
    ) -> None:
        self._inherited: set[str] = set()  # pieces of other runs that the current job has used

        def inherit(key: str) -> None:
            self._inherited.add(key)
            on_inherited(key)

        self._context = context = WorkerContext(setting, cores, waiting, inherit)
        self._whole_models = whole_models = WholeModels(context)
        parts, artifacts = Parts(context), OpenArtifacts(context)
        self._handlers: Mapping[type[Job], Callable[[Any], Answer]] = {
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
            ProfileJob: artifacts.profile,
        }

    def do(self, job: Job) -> Answer:
        """Run one job. Whatever it raises is a failure.

        If the job raises after it used pieces that another run built, these may be the cause: they are rebuilt, and
        the job is repeated once. If the process dies of them, its parent does the same.
        """
        for attempt in range(2):
            self._inherited.clear()
            try:
                with self._context.exclusive.job() if isinstance(job, TimedJob) else nullcontext():
                    return self._handlers[type(job)](job)
            except Exception as error:  # a backend may raise anything, also over a file that is not what it seems
                if attempt or not self._inherited:
                    return _failure(error)
            self._whole_models.loaded_pieces.clear()
            for key in self._inherited:
                self._context.compiler.cache.discard(key)
        raise AssertionError("the second attempt returns")

    def _build(self, job: BuildJob) -> Compiled | Failure:
        context, began_s = self._context, _processor_s()
        context.expect_any_backend()
        # A compilation for a device may run there, which must not affect a process that times on it.
        on_device = device_of(*job.region.family) != CPU
        with context.exclusive.job() if on_device else context.exclusive.compiling():
            piece = context.compiler.region(context.graph, job.region)
        compiled = Compiled(_processor_s() - began_s)
        return unbuilt(piece) if isinstance(piece, BuildFailure) else compiled

    def _tune(self, job: TuneJob) -> TunedKernels:
        backend = get_backend(job.backend)
        if not isinstance(backend, Tunable):
            raise InputError(f"backend {job.backend} has nothing to tune")
        model = extract(self._context.graph, job.nodes)
        return TunedKernels(backend.tuner().tune(model, self._context.target, Path(job.records), job.trials))

    def _write(self, job: ArtifactJob) -> Written | Failure:
        self._context.expect_any_backend()
        placement = Placement(job.regions)
        with self._context.exclusive.compiling():  # a search may be timing meanwhile
            program = self._context.compiler.placement(self._context.graph, placement)
            if isinstance(program, BuildFailure):
                return unbuilt(program)
            info = {**job.info, REGIONS: job.regions, EXACT: all_exact(placement)}
            write_artifact(Path(job.artifact), [Profile(program, info)], self._context.target)
        return Written()

    def _copy(self, job: CopyJob) -> Measured:
        device = open_device(self._context.target.device)
        self._context.exclusive.acquire_exclusive()
        return Measured(time_copies(device, job.nbytes, job.to_device, job.runs), 0.0, 0.0)

    def _judge(self, job: JudgeJob) -> Judgement:
        with load_artifact(Path(job.artifact)) as session:
            return self._context.judge.closely(session, Path(job.samples))


def _failure(error: Exception) -> Failure:
    """The failure of a job that raised ``error``."""
    match error:
        case OutOfDeviceMemory():
            return Failure(Fault.MEMORY, str(error))
        case CollageError() if not isinstance(error, CannotLoad):
            return Failure(Fault.REFUSED, str(error))
        case OSError() if error.errno in OF_THE_MACHINE:
            return Failure(Fault.SYSTEM, system_message(error))
    cause = (isinstance(error, CannotLoad) and error.__cause__) or error
    detail = f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
    # Libraries that allocate memory of a device raise errors of their own, which share these words.
    memory = isinstance(cause, MemoryError) or "out of memory" in detail.lower()
    return Failure(Fault.MEMORY if memory else Fault.RAISED, detail)


def _processor_s() -> float:
    """Processor seconds of this process so far, and of the child processes that it waited for."""
    return sum(os.times()[:4])
