"""Artifacts that a worker process holds open for checks and timing."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from collage_evo.accuracy.samples import read_samples
from collage_evo.backends.profiled import Kernel
from collage_evo.digests import forget
from collage_evo.errors import InputError
from collage_evo.fitness.jobs import (
    Opened,
    OpenJob,
    Profiled,
    ProfileJob,
    ReloadJob,
    SampleBatches,
    SampleBatchesJob,
    SampleJob,
    Timed,
    TimeJob,
    Traced,
    TraceJob,
    recorded_regions,
)
from collage_evo.fitness.kernels import nodes_of_kernels, nodes_of_whole
from collage_evo.fitness.timing import SingleSession, sample_batch, throttled, time_call_ms
from collage_evo.fitness.worker_context import WorkerContext
from collage_evo.graph.load.files import read_model
from collage_evo.hardware.memory import PeakMemory
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Region
from collage_evo.runtime.artifact import load_artifact, read_artifact
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.manifest import computes_exactly
from collage_evo.runtime.program import Piece
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import TimedInputs, measure_uncontended
from collage_evo.runtime.trace import Naming, trace_artifact

LONG_TURN_S = 1.0
"""A round of a race that takes longer is not repeated."""
BLOCKS = 64
SMALLEST, LARGEST = 64, 2**22
"""Bytes of a block of ballast: from what libraries allocate for a name to what they map separate pages for."""


def ballast(order: random.Random) -> list[bytearray]:
    """Blocks of random sizes: while they are allocated, libraries load at other addresses."""
    sizes = (math.exp(order.uniform(math.log(SMALLEST), math.log(LARGEST))) for _ in range(BLOCKS))
    return [bytearray(int(size)) for size in sizes]


class OpenArtifact:
    """An open artifact, whose sessions are loaded when they are needed.

    Args:
        artifact: its directory.
        shares: for each session that is to be timed its cores; a single one is ``session`` itself, on any cores.
    """

    def __init__(self, artifact: Path, shares: Sequence[tuple[int, ...]]) -> None:
        self._load, self._shares = partial(load_artifact, artifact, proven=True), shares
        self._at_work: SingleSession | Crowd | None = None

    @cached_property
    def session(self) -> Session:
        """A session for checks and profiles, and for timing where it is the only one."""
        return self._load()

    def at_work(self, inputs: TimedInputs) -> SingleSession | Crowd:
        """The timed sessions, ready to run on ``inputs``, reused by later calls."""
        if self._at_work is None:
            several = len(self._shares) > 1
            self._at_work = Crowd(self._load, self._shares) if several else SingleSession(self.session)
            self._at_work.feed(inputs)
        return self._at_work

    def close(self) -> None:
        """Close all sessions."""
        if isinstance(self._at_work, Crowd):
            self._at_work.close()
        if "session" in vars(self):
            self.session.close()


class OpenArtifacts:
    """The part of a worker process that opens artifacts and times them, one or several in turns."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._opened: dict[str, OpenArtifact] = {}

    def open(self, job: OpenJob) -> Opened:
        """Open an artifact in place of all others, and check it against every reference."""
        references = self._context.references  # read now: they are not part of what serving takes
        judge, artifact = self._context.judge, Path(job.artifact)
        self._close_all()
        forget()  # a user's process verifies every file, so this is what loading takes
        peak, began = PeakMemory(), time.perf_counter()
        opened = self._opened[job.artifact] = OpenArtifact(artifact, self._context.shares)
        session = opened.session
        load_ms = (time.perf_counter() - began) * 1e3
        session.run(None, references[0][0])
        peak_bytes = peak.bytes
        exact = computes_exactly(artifact)
        error = judge.check(session, references, exact)
        judge.check_edges(session, exact and job.edges)
        judge.keep_nonfinite(session)
        return Opened(error.relative, error.max_abs, load_ms, peak_bytes, session.notes)

    def time(self, job: TimeJob) -> Timed:
        """Time the artifact that was opened last."""
        at_work = self._last.at_work(self._context.timed)
        self._context.exclusive.acquire_exclusive()
        timing = measure_uncontended(
            partial(at_work.measure, job.timing),
            attempts=job.attempts,
            pause_s=0.05,
            timeout_s=LONG_TURN_S,
            throttled=partial(throttled, at_work.sessions[0]),
        )
        return Timed(timing.times_ms, timing.contended)

    def reload(self, job: ReloadJob) -> SampleBatches:
        """Open artifacts in place of all others, each behind ballast of its own, and run a sample batch of each."""
        self._close_all()
        order, held = random.Random(job.seed), []
        for artifact in job.artifacts:
            held.append(ballast(order))
            opened = self._opened[artifact] = OpenArtifact(Path(artifact), self._context.shares)
            opened.at_work(self._context.timed)
        return self.batches(SampleBatchesJob(job.artifacts))

    def batches(self, job: SampleBatchesJob) -> SampleBatches:
        """A sample batch of each artifact in turn."""
        self._context.exclusive.acquire_exclusive()
        inputs = self._context.timed
        return SampleBatches(tuple(sample_batch(self._opened[one].at_work(inputs)) for one in job.artifacts))

    def on_sample(self, job: SampleJob) -> Timed:
        """A sample batch of an artifact on a sample."""
        if job.artifact not in self._opened:
            self._opened[job.artifact] = OpenArtifact(Path(job.artifact), self._context.shares)
        (sample,), timed = read_samples(Path(job.sample)), SingleSession(self._opened[job.artifact].session)
        timed.feed(TimedInputs((sample.feeds,)))
        self._context.exclusive.acquire_exclusive()
        if job.first:
            timed.execute()
        return Timed(sample_batch(timed))

    def profile(self, job: ProfileJob) -> Profiled:
        """Time each region of the artifact that was opened last."""
        artifact = self._last.session
        self._context.exclusive.acquire_exclusive()
        profiles, began = list[list[float]](), time.monotonic()
        while len(profiles) < job.runs and (len(profiles) < 3 or time.monotonic() - began < job.seconds):
            profiles.append(artifact.profile())
        region_ms = tuple(map(float, np.median(profiles, axis=0)))
        return Profiled(region_ms, time_call_ms(artifact, self._context.timed.feeds[0]))

    def trace(self, job: TraceJob) -> Traced:
        """Time the kernels of an artifact, in place of all others."""
        self._close_all()
        artifact, context = Path(job.artifact), self._context
        profile = read_artifact(artifact).profiles[0]
        pieces = profile.program.pieces

        def named(region: Region, kernels: Sequence[Kernel]) -> list[tuple[str, ...]]:
            return nodes_of_kernels(context.graph, region, context.compiler.model(context.graph, region), kernels)

        namings: dict[Piece, Naming] = {
            piece: partial(named, region)
            for piece, region in zip(pieces, recorded_regions(profile.info, len(pieces)), strict=False)
        } or {pieces[0]: lambda kernels: nodes_of_whole(read_model(context.setting.files.original), kernels)}
        context.exclusive.acquire_exclusive()
        events = trace_artifact(artifact, context.timed.feeds[0], job.runs, warmup=1, namings=namings)
        spent = multimap(((one.region, one.nodes), one.us) for one in events if one.operator)
        return Traced(tuple((*key, sum(times_us) / 1e3 / job.runs) for key, times_us in spent.items()))

    @property
    def _last(self) -> OpenArtifact:
        if not self._opened:
            raise InputError("no artifact was opened")
        return next(reversed(self._opened.values()))

    def _close_all(self) -> None:
        while self._opened:
            self._opened.popitem()[1].close()
