"""Machine: the door through which the stages of a run measure, on this machine or on a cluster.

Stages and their tests know :class:`Machine` and the records of its methods only; processes, cores, locks, building
ahead and the workers of a cluster are behind it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits
from collage_evo.fitness.builders import Builders, build_job
from collage_evo.fitness.evaluate import MeasuredEvaluator
from collage_evo.fitness.evaluate import ReferenceArtifact as ReferenceArtifact
from collage_evo.fitness.evaluate import TimingRule as TimingRule
from collage_evo.fitness.jobs import (
    A,
    ArtifactJob,
    Asks,
    BuildJob,
    JudgeJob,
    Opened,
    OpenJob,
    PlacementJob,
    Profiled,
    ProfileJob,
    ReloadJob,
    Reply,
    Setting,
    TimeJob,
    Traced,
    TraceJob,
    Written,
    regions_of,
)
from collage_evo.fitness.pool import WorkerPool
from collage_evo.fitness.worker_slot import Over
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.runtime.timing import ATTEMPTS, Timing, TimingSettings

JUDGE_TIMEOUT_S = 600.0
"""Time limit of a metric in seconds: the user's may be slow over hundreds of samples, resampled many times for its
interval."""
PROFILE_RUNS = 10
OnWorker = Callable[[str, float, bool], None]
"""Gets the name of a worker, its latency of the placement that workers agree on in ms, and whether it takes part."""


class Process(AbstractContextManager["Process"], Protocol):
    """A measuring process that has loaded nothing yet; its exit ends it."""

    def start(self) -> object:
        """Start it, so that it gets ready while others do; else its first job does."""

    def call(self, job: Asks[A], timeout_s: float) -> A | Failure:
        """The answer; a crash, a silence of ``timeout_s`` or too much memory is a failure."""

    def close(self) -> None:
        """End it."""


class StartsProcesses(Protocol):
    """Makes measuring processes."""

    def __call__(self, python: str = "") -> Process:
        """One in the interpreter ``python``; empty for that of the machine."""


class Regions(Protocol):
    """Compiles and times regions: processes that compile stay while it is open."""

    def build(self, jobs: Iterable[BuildJob], seconds: float = math.inf) -> Mapping[BuildJob, Failure]:
        """Compile all ``jobs``; why some could not be compiled, or not within ``seconds``."""

    def map(self, jobs: Sequence[Asks[A]], over: Over = lambda: False) -> Iterator[Reply[A]]:
        """Replies in the order of ``jobs``; none begins once time is ``over``."""

    def placements(
        self, placements: Sequence[Placement], timing: TimingSettings, sessions: int = 1
    ) -> list[Outcome | None]:
        """Compile all ``placements``, then time each as a whole model, in so many sessions at once."""


class PlacementEvaluator(Protocol):
    """Times placements against a reference run: :class:`collage_evo.fitness.evaluate.MeasuredEvaluator`."""

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome | None]:
        """Outcomes of ``placements``; none where one would have begun after ``until``."""

    def race_against(self, outcome: Outcome) -> None:
        """Let all later ones race against ``outcome`` if it may be the answer."""

    def write(self, placement: Placement, artifact: Path) -> Future[Written | Failure]:
        """Start writing a placement that was measured as an artifact."""

    def listen(self, on_measured: Callable[[Placement, Outcome], None]) -> None:
        """Call ``on_measured`` with each placement that is measured from now on, in the thread that measures it."""


class Machine(Protocol):
    """What measures for the stages of a run. Nothing else is timed while a method times."""

    @property
    def setting(self) -> Setting:
        """Settings that all measurements share."""

    @property
    def first_cores(self) -> tuple[int, ...]:
        """Cores on which one session runs where the machine has several groups of them."""

    @property
    def timeout_s(self) -> float:
        """Seconds of silence after which a process counts as hanging."""

    @property
    def memory_bytes(self) -> int:
        """Memory that a process may take."""

    @property
    def warning(self) -> str:
        """The warning to print before anything is measured; empty if there is none."""

    @property
    def sessions(self) -> int:
        """Sessions of a whole model that run at once while it is timed: with several, latencies are the machine's."""

    @property
    def most_sessions(self) -> int:
        """Sessions that fill the machine."""

    def exclusive(self, sessions: int = 1) -> AbstractContextManager[StartsProcesses]:
        """Exclusive use of the machine: makes processes on its first cores, on which so many sessions run at once."""

    def regions(self) -> AbstractContextManager[Regions]:
        """Compiles and times regions."""

    def placements(
        self, rule: TimingRule, agreed_on: Placement, margin: float, on_worker: OnWorker
    ) -> AbstractContextManager[PlacementEvaluator]:
        """Times whole placements by ``rule``.

        Workers of a cluster agree on the latency of ``agreed_on``, within the share ``margin``, or take no part.
        """

    def write(self, placements: Mapping[str, Placement], directory: Path) -> Mapping[str, Path | Failure]:
        """Write each of ``placements`` as an artifact of its name in ``directory``; a failure is of one only."""

    def check(self, artifact: Path) -> tuple[Opened | Failure, Profiled | Failure]:
        """Load ``artifact`` in a fresh process, check its outputs, and time each of its regions."""

    def trace(self, artifact: Path, runs: int) -> Traced | Failure:
        """The time of each kernel in ``artifact``, which was checked before, in a fresh process."""

    def judge(self, artifact: Path, samples: Path, moves: bool = True) -> Judgement | Failure:
        """The error of ``artifact`` over ``samples``, in a fresh process, which a user's metric may end; ``moves``:
        and how far rows move in a batch and beside padding."""

    def time(self, artifact: Path, timing: TimingSettings, sessions: int) -> Timing | Failure:
        """The time of a run of ``artifact``, which was checked before, in so many sessions at once."""

    def within(self, limits: Limits) -> Self:
        """The same machine, judging by other limits."""

    def on_threads(self, threads: int) -> Self:
        """The same machine, measuring on so many threads."""

    def by(self, python: str) -> Self:
        """The same machine, whose processes run in the interpreter ``python``, with the libraries of its
        environment; empty for that of the run."""

    def close(self) -> None:
        """End all processes, and free their cores."""


@dataclass(frozen=True)
class PooledMachine:
    """A :class:`Machine` whose jobs a pool of workers does; ``throughput``: whole models are timed in as many
    sessions as fill it."""

    pool: WorkerPool
    throughput: bool = False

    @property
    def setting(self) -> Setting:
        return self.pool.config.setting

    @property
    def first_cores(self) -> tuple[int, ...]:
        return self.pool.config.slots[0]

    @property
    def timeout_s(self) -> float:
        return self.pool.config.timeout_s

    @property
    def memory_bytes(self) -> int:
        return self.pool.config.memory_bytes

    @property
    def warning(self) -> str:
        return self.pool.workers.warning

    @property
    def sessions(self) -> int:
        return self.most_sessions if self.throughput else 1

    @property
    def most_sessions(self) -> int:
        target = self.setting.target
        return 1 if target.accelerated else max(1, len(self.pool.config.cores) // target.threads)

    def in_sessions(self, sessions: int) -> WorkerPool:
        """The pool on slots for so many sessions at once. It shares its workers with the others: those that hold
        cores for another number are ended."""
        pool = self.pool.changed(sessions=sessions)
        if pool.config.slots != self.pool.config.slots:
            pool.close()
        return pool

    @contextlib.contextmanager
    def exclusive(self, sessions: int = 1) -> Iterator[StartsProcesses]:
        pool = self.in_sessions(sessions)
        with pool.uncontended() as cores:
            yield lambda python="": (pool.changed(python=python) if python else pool).config.process(cores)

    @contextlib.contextmanager
    def regions(self) -> Iterator[Regions]:
        with Builders(self.pool) as builders:
            yield _PooledRegions(self, builders)

    @contextlib.contextmanager
    def placements(
        self, rule: TimingRule, agreed_on: Placement, margin: float, on_worker: OnWorker
    ) -> Iterator[PlacementEvaluator]:
        job = PlacementJob(regions_of(agreed_on), rule.timing, math.inf)
        pool, asked = self.in_sessions(self.sessions).agreed(job, margin)
        for worker, latency_ms, agrees in asked:
            on_worker(worker, latency_ms, agrees)
        alike = not self.setting.target.accelerated and self.sessions == 1
        with Builders(pool) as builders:
            yield MeasuredEvaluator(pool, builders, rule if alike else replace(rule, reference_run=None))

    def write(self, placements: Mapping[str, Placement], directory: Path) -> Mapping[str, Path | Failure]:
        written: dict[str, Path | Failure] = {}
        with self.pool.config.process(self.first_cores) as process:
            for name, placement in placements.items():
                artifact = directory / f"{name}.collage"
                job = ArtifactJob(regions_of(placement), str(artifact), {"key": placement.key})
                answer = process.call(job, self.timeout_s)
                written[name] = answer if isinstance(answer, Failure) else artifact
        return written

    def check(self, artifact: Path) -> tuple[Opened | Failure, Profiled | Failure]:
        with self.exclusive() as process_of, process_of() as process:
            opened = process.call(OpenJob(str(artifact)), self.timeout_s)
            return opened, process.call(ProfileJob(runs=PROFILE_RUNS), self.timeout_s)

    def trace(self, artifact: Path, runs: int) -> Traced | Failure:
        with self.exclusive() as process_of, process_of() as process:
            return process.call(TraceJob(str(artifact), runs), self.timeout_s)

    def judge(self, artifact: Path, samples: Path, moves: bool = True) -> Judgement | Failure:
        with self.exclusive() as process_of, process_of() as process:
            job = JudgeJob(str(artifact), str(samples), moves)
            return process.call(job, max(self.timeout_s, JUDGE_TIMEOUT_S))

    def time(self, artifact: Path, timing: TimingSettings, sessions: int) -> Timing | Failure:
        with self.exclusive(sessions) as process_of, process_of() as process:
            opened = process.call(ReloadJob((str(artifact),), 0), self.timeout_s)
            if isinstance(opened, Failure):
                return opened
            timed = process.call(TimeJob(timing, attempts=ATTEMPTS), self.timeout_s)
        return timed if isinstance(timed, Failure) else Timing(timed.times_ms)

    def within(self, limits: Limits) -> PooledMachine:
        return replace(self, pool=self.pool.changed(limits=limits))

    def on_threads(self, threads: int) -> PooledMachine:
        return replace(self, pool=self.pool.changed(target=replace(self.setting.target, threads=threads)))

    def by(self, python: str) -> PooledMachine:
        return replace(self, pool=self.pool.changed(python=python))

    def close(self) -> None:
        self.pool.close()


@dataclass(frozen=True)
class _PooledRegions:
    machine: PooledMachine
    builders: Builders

    def build(self, jobs: Iterable[BuildJob], seconds: float = math.inf) -> Mapping[BuildJob, Failure]:
        return self.builders.build(jobs, seconds)

    def map(self, jobs: Sequence[Asks[A]], over: Over = lambda: False) -> Iterator[Reply[A]]:
        return self.machine.pool.map(jobs, over)

    def placements(
        self, placements: Sequence[Placement], timing: TimingSettings, sessions: int = 1
    ) -> list[Outcome | None]:
        self.build([build_job(region) for placement in placements for region in placement.regions])
        pool = self.machine.in_sessions(sessions)
        return MeasuredEvaluator(pool, self.builders, TimingRule(timing)).evaluate(placements)
