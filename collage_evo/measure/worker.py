"""Job handlers of a worker process: they compile, check and time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from collage_evo.backends.base import BuildFailure
from collage_evo.backends.registry import device_of, get_backend, probe_all
from collage_evo.backends.select import arithmetic_of, exact_arithmetic
from collage_evo.backends.tuning import Tunable
from collage_evo.backends.variants import Arithmetic
from collage_evo.devices.open import open_device
from collage_evo.errors import InputError
from collage_evo.graph.extract import extract
from collage_evo.graph.files import read_model
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import Error, reference_outputs, relative_error
from collage_evo.graph.values import plain
from collage_evo.measure.build.cache import PieceCache
from collage_evo.measure.build.compiler import Compiler
from collage_evo.measure.cold_caches import Flush
from collage_evo.measure.copying import time_copies
from collage_evo.measure.exclusive import ExclusiveTiming
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
    KernelTimes,
    Measured,
    Opened,
    OpenJob,
    PlacementJob,
    Profiled,
    ProfileJob,
    ReloadJob,
    SampleBatches,
    SampleBatchesJob,
    Setting,
    Timed,
    TimedJob,
    TimeJob,
    TunedKernels,
    TuneJob,
    WholeJob,
    Written,
)
from collage_evo.measure.judging import EXACT, Judge, all_exact, computes_exactly
from collage_evo.measure.kernels import kernels_of, profile_piece
from collage_evo.measure.open_artifact import OpenArtifact, close_all, reloaded
from collage_evo.measure.references import (
    Reference,
    nonfinite_references,
    read_recorded,
    read_references,
)
from collage_evo.measure.sample_batches import sample_batch
from collage_evo.measure.stopwatch import region_timer, throttled, time_call_ms
from collage_evo.measure.watchdog import timeout_s, watchdog
from collage_evo.measure.whole_models import WholeModels, unbuilt
from collage_evo.patterns.match import Placement, Region
from collage_evo.placement.failure import Failure
from collage_evo.runtime.artifact import Profile, load_artifact, write_artifact
from collage_evo.runtime.pools import settle_pools
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import ATTEMPTS, Timing, TimingSettings, measure, measure_uncontended
from collage_evo.target.core_distance import CoreDistance
from collage_evo.target.cores import own_cores
from collage_evo.target.memory import PeakMemory
from collage_evo.target.private import machine_directory
from collage_evo.target.slots import timing_slots, usable_cores
from collage_evo.target.target import CPU

LONG_TURN_S = 1.0
"""A round of a race that takes longer is not repeated."""
VAIN_SHARE, VAIN_LEAST = 0.25, 3
"""If more matches than this stay contended in every repeat, later ones are timed once, because repeats do not
help."""


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
        self._setting = setting
        shares = timing_slots(cores or usable_cores(), setting.target.threads)
        self._shares = shares[: setting.sessions]
        """The cores of each session, where several run at once."""
        self._target = replace(setting.target, cores=cores if setting.sessions == 1 else shares[0])
        self._on_inherited = on_inherited
        self._inherited: set[str] = set()  # pieces of other runs that the current job has used
        cache = PieceCache(Path(setting.cache), setting.cache_bytes, setting.run, self._inherit)
        self._compiler = Compiler(self._target, cache, setting.files.ranges)
        self._judge = Judge(setting)
        self._opened: dict[str, OpenArtifact] = {}
        self._exclusive = ExclusiveTiming(machine_directory(), waiting, setting.run)
        given = setting, self._target, self._shares, lambda: self.references, self._judge, self._exclusive
        self._whole_models = WholeModels(*given, self._uncontended)
        self._costs = self._contended_costs = 0

    @cached_property
    def graph(self) -> Graph:
        return build_graph(read_model(self._setting.files.normalised))

    @cached_property
    def references(self) -> list[Reference]:
        return read_references(self._setting.files.reference)

    @cached_property
    def recorded(self) -> dict[str, Any]:
        return read_recorded(self._setting.files.recorded)

    @cached_property
    def flush(self) -> Flush:
        return Flush(self._target.threads)

    @cached_property
    def near(self) -> Callable[[float], bool]:
        """Whether the target's cores are close to each other, for measurements on several of them."""
        cores = own_cores(self._target.threads)
        return CoreDistance(cores).near if cores else lambda wait_s: True

    def _inherit(self, key: str) -> None:
        self._inherited.add(key)
        self._on_inherited(key)

    def do(self, job: Job) -> Answer:
        """Run one job. Expected failures are answers.

        If the job raises after it used pieces that another run built, these may be the cause: they are rebuilt, and
        the job is repeated once. If the process dies of them, its parent does the same.
        """
        self._inherited.clear()
        try:
            return self._do(job)
        except Exception:  # a library may raise anything over a file that is not what it seems
            if not self._inherited:
                raise
        self._whole_models.loaded_pieces.clear()
        for key in self._inherited:
            self._compiler.cache.discard(key)
        return self._do(job)

    def _do(self, job: Job) -> Answer:
        match job:
            case BuildJob():
                self._expect_any_backend()
                region, began_s = job.region, _processor_s()
                # A compilation for a device may run there, which must not affect a process that times on it.
                with self._exclusive.job() if device_of(*region.family) != CPU else self._exclusive.compiling():
                    piece = self._compiler.region(self.graph, region)
                compiled = Compiled(_processor_s() - began_s)
                return unbuilt(piece) if isinstance(piece, BuildFailure) else compiled
            case TuneJob():
                return self._tune(job)
            case ArtifactJob():
                self._expect_any_backend()
                return self._write(job)
        with self._exclusive.job():
            return self._timed(job)

    def _timed(self, job: TimedJob) -> Answer:
        """Run a job that times something, with exclusive use of this machine from there on."""
        match job:
            case CostJob():
                self._expect_any_backend()
                return self._cost(job)
            case KernelsJob():
                self._expect_any_backend()
                return self._kernels(job)
            case CopyJob():
                device = open_device(self._target.device)
                self._exclusive.acquire_exclusive()
                times = time_copies(device, job.nbytes, job.to_device, job.runs)
                return Measured(times, 0.0, 0.0)
            case PlacementJob():
                self._expect_any_backend()
                return self._placement(job)
            case WholeJob():
                return self._whole(job)
            case FallbackJob():
                return self._fallback(job)
            case OpenJob():
                return self._open(job)
            case JudgeJob():
                with load_artifact(Path(job.artifact)) as session:
                    return self._judge.closely(session, Path(job.samples))
            case TimeJob():
                artifact, at_work = self._artifact.session, self._artifact.at_work(self.references[0][0])
                self._exclusive.acquire_exclusive()
                timing = measure_uncontended(
                    partial(at_work.measure, job.timing),
                    attempts=job.attempts,
                    pause_s=0.05,
                    timeout_s=LONG_TURN_S,
                    throttled=partial(throttled, artifact),
                )
                return Timed(timing.times_ms, timing.contended)
            case ReloadJob():
                close_all(self._opened)
                self._opened |= reloaded(job, self._shares, self.references[0][0])
                self._exclusive.acquire_exclusive()
                return self._batches(job.artifacts)
            case SampleBatchesJob():
                self._exclusive.acquire_exclusive()
                return self._batches(job.artifacts)
            case ProfileJob():
                artifact = self._artifact.session
                self._exclusive.acquire_exclusive()
                profiles = [artifact.profile() for _ in range(job.runs)]
                region_ms = tuple(map(float, np.median(profiles, axis=0)))
                return Profiled(region_ms, time_call_ms(artifact, self.references[0][0]))

    @property
    def _artifact(self) -> OpenArtifact:
        if not self._opened:
            raise InputError("no artifact was opened")
        return next(reversed(self._opened.values()))

    def _expect_any_backend(self) -> None:
        """Configure all thread pools before the first library is loaded, even if only to compile."""
        settle_pools((name for name, probe in probe_all() if probe.available), self._target)

    def _cost(self, job: CostJob) -> Measured | Failure:
        region = job.region
        bound = self._judge.bound(exact_arithmetic(region))
        program = self._region_program(region)
        if isinstance(program, BuildFailure):
            return unbuilt(program)
        model = extract(self.graph, region.nodes)
        feeds = self._feeds(model, program)
        expected = plain(reference_outputs(model, feeds, self._target.threads))
        named = dict(zip(program.inputs, feeds.values(), strict=True))
        with Session([program], self._target) as session:
            with watchdog(timeout_s(job.give_up_ms, session.device is not None)):
                outputs = session.run(None, named)
            error = relative_error(plain(outputs), expected)
            if failure := self._judge.fault(session, named, error, bound) or self._lost(session, model, feeds):
                return failure
            session.feed(named)

            timer = region_timer(session, job, self.graph, named, lambda: self.flush)
            self._exclusive.acquire_exclusive()
            in_vain = self._contended_costs > max(VAIN_LEAST, VAIN_SHARE * self._costs)
            timing = self._uncontended(session, timer, job.timing, 1 if in_vain else ATTEMPTS)
            self._costs += 1
            self._contended_costs += timing.contended
            last = relative_error([plain(session.read(name)) for name in program.outputs], expected)
            if failure := self._judge.fault(session, named, last, bound):
                return failure.after(timing.n)
        return Measured(timing.times_ms, error.relative, error.max_abs, timing.contended)

    def _lost(self, session: Session, model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Failure | None:
        """The failure of a piece, a region's ``model``, where NaN and infinity must be preserved."""
        if not self._setting.keeps_nonfinite:
            return None
        names = (session.program.inputs, session.program.outputs)
        return self._judge.lost(session, nonfinite_references(model, feeds, names, self._target.threads))

    def _feeds(self, model: onnx.ModelProto, program: Program) -> dict[str, np.ndarray]:
        """Values for the inputs of a region's ``model``: those of the first reference run, else random ones."""
        own = {value.name: name for value, name in zip(model.graph.input, program.inputs, strict=False)}
        known = {inner: self.recorded[name] for inner, name in own.items() if name in self.recorded}
        return random_inputs(model, seed=1, values=known)

    def _kernels(self, job: KernelsJob) -> KernelTimes | Failure:
        region = job.region
        program = self._region_program(region)
        if isinstance(program, BuildFailure):
            return unbuilt(program)
        inputs = list(self._feeds(extract(self.graph, region.nodes), program).values())
        with Session([program], self._target) as session:
            session.run(None, dict(zip(program.inputs, inputs, strict=True)))
            self._exclusive.acquire_exclusive()
            timing = self._uncontended(session, partial(measure, session.execute, job.timing), job.timing, 1)
            kernel_times = profile_piece(program.pieces[0], self._target, inputs, job.seconds)
        kernels = kernels_of(self.graph, region, self._compiler.model(self.graph, region), kernel_times)
        return KernelTimes(tuple(kernels), timing.times_ms, timing.contended)

    def _uncontended(
        self, session: Session, time_once: Callable[[], Timing], timing: TimingSettings, attempts: int = ATTEMPTS
    ) -> Timing:
        slowed = partial(throttled, session)
        return measure_uncontended(time_once, self.near, attempts, timeout_s=timing.max_seconds, throttled=slowed)

    def _region_program(self, region: Region) -> Program | BuildFailure:
        piece = self._compiler.region(self.graph, region)
        if isinstance(piece, BuildFailure):
            return piece
        names = (*piece.inputs, *piece.outputs)
        return Program((piece,), piece.inputs, piece.outputs, {n: self.graph.tensors[n] for n in names})

    def _placement(self, job: PlacementJob) -> Measured | Failure:
        placement = Placement(job.regions)
        program = self._compiler.placement(self.graph, placement)
        return self._whole_models.measure(program, job.timing, all_exact(placement), job.give_up_ms, job)

    def _write(self, job: ArtifactJob) -> Written | Failure:
        placement = Placement(job.regions)
        program = self._compiler.placement(self.graph, placement)
        if isinstance(program, BuildFailure):
            return unbuilt(program)
        info = {**job.info, REGIONS: job.regions, EXACT: all_exact(placement)}
        write_artifact(Path(job.artifact), [Profile(program, info)], self._target)
        return Written()

    def _tune(self, job: TuneJob) -> TunedKernels:
        backend = get_backend(job.backend)
        if not isinstance(backend, Tunable):
            raise InputError(f"backend {job.backend} has nothing to tune")
        model = extract(self.graph, job.nodes)
        return TunedKernels(backend.tuner().tune(model, self._target, Path(job.records), job.trials))

    def _whole(self, job: WholeJob) -> Measured | Failure:
        program = self._compiler.whole(read_model(self._setting.files.original), job.backend, job.variant)
        exact = arithmetic_of(job.backend, job.variant) is Arithmetic.FLOAT32
        if not isinstance(program, BuildFailure):
            profile = Profile(program, {"baseline": job.backend, EXACT: exact})
            write_artifact(Path(job.artifact), [profile], self._target)
        return self._whole_models.measure(program, job.timing, exact, job.give_up_ms)

    def _fallback(self, job: FallbackJob) -> Measured | Failure:
        program = self._compiler.whole(read_model(self._setting.files.dynamic), job.backend, job.variant)
        if isinstance(program, BuildFailure):
            return unbuilt(program)
        write_artifact(Path(job.artifact), [Profile(program, {"fallback": job.backend})], self._target)
        self._exclusive.acquire_exclusive()
        times: list[float] = []
        error = Error(0.0, 0.0)
        began = time.monotonic()
        while len(times) < job.loads and (not times or time.monotonic() - began < job.seconds):
            with Session([program], self._target) as session:
                session.feed(self.references[0][0])
                start = time.perf_counter()
                session.execute()
                times.append((time.perf_counter() - start) * 1e3)
                if len(times) == 1:
                    checked = self._judge.check(session, self.references, exact=True)
                    if isinstance(checked, Failure):
                        return checked
                    error = checked
        return Measured(tuple(times), error.relative, error.max_abs)

    def _open(self, job: OpenJob) -> Opened | Failure:
        references = self.references  # read now: they are not part of what serving takes
        close_all(self._opened)
        peak, began = PeakMemory(), time.perf_counter()
        opened = self._opened[job.artifact] = OpenArtifact(Path(job.artifact), self._shares)
        load_ms, session = (time.perf_counter() - began) * 1e3, opened.session
        session.run(None, references[0][0])
        peak_bytes = peak.bytes
        exact = computes_exactly(Path(job.artifact))
        error = self._judge.check(session, references, exact)
        if isinstance(error, Failure):
            return error
        if failure := self._judge.wrong_at_edges(session, exact) or self._judge.lost(session):
            return failure
        return Opened(error.relative, error.max_abs, load_ms, peak_bytes, session.notes)

    def _batches(self, artifacts: Sequence[str]) -> SampleBatches:
        feeds = self.references[0][0]
        return SampleBatches(tuple(sample_batch(self._opened[one].at_work(feeds)) for one in artifacts))


def _processor_s() -> float:
    """Processor seconds of this process so far, and of the child processes that it waited for."""
    return sum(os.times()[:4])
