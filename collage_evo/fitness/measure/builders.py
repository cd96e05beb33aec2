"""Compiles regions before anything is timed: takes regions, gives why some cannot be compiled."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Mapping
from types import TracebackType

import joblib

from collage_evo.fitness.failure import Failure
from collage_evo.fitness.measure.answers import Compiled
from collage_evo.fitness.measure.jobs import BuildJob, spec_of
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.fitness.measure.sandbox import Sandbox
from collage_evo.patterns.match import Match, Region
from collage_evo.target.slots import timing_slots


class Builders:
    """Building processes beside a pool's measuring ones, one for each core, started when first needed.

    On several threads only one placement is timed at once, and one process would compile its regions in turn. So
    all that a batch lacks is compiled first, with every core at work, and timed afterwards, when no neighbour
    compiles. Pieces go by way of the cache on disk. A cluster's workers compile on their own.
    """

    def __init__(self, pool: MeasuringPool) -> None:
        self._pool = pool
        self._sandboxes = [
            Sandbox(pool.setting, cores, pool.memory_bytes)
            for cores in timing_slots(pool.cores, pool.setting.target.threads)
            for _ in cores
        ] if pool.executor.local else []  # fmt: skip
        self._idle: queue.LifoQueue[Sandbox] = queue.LifoQueue()  # no more processes than regions at a time
        for sandbox in self._sandboxes:
            self._idle.put(sandbox)
        self._known: dict[BuildJob, Compiled | Failure] = {}
        self._doubted: set[BuildJob] = set()
        """Jobs that failed once, for what may have been the machine's fault of the moment."""

    def build(self, jobs: Iterable[BuildJob]) -> Mapping[BuildJob, Failure]:
        """Compile what was not asked for before, and once more what failed for a reason that may pass.

        Gives why some of ``jobs`` cannot be compiled.
        """
        wanted = tuple(dict.fromkeys(jobs))
        unknown = [job for job in wanted if job not in self._known or job in self._doubted]
        fresh = unknown if self._sandboxes else []
        answers = joblib.Parallel(len(self._sandboxes) or 1, backend="threading")(
            joblib.delayed(self._build)(job) for job in fresh
        )
        for job, answer in zip(fresh, answers, strict=True):
            if job not in self._known and isinstance(answer, Failure) and answer.fault.passing:
                self._doubted.add(job)
            else:
                self._doubted.discard(job)
            self._known[job] = answer
        return {job: failure for job in wanted if isinstance(failure := self._known.get(job), Failure)}

    def _build(self, job: BuildJob) -> Compiled | Failure:
        sandbox = self._idle.get()
        try:
            return sandbox.call(job, self._pool.timeout_s)
        finally:
            self._idle.put(sandbox)

    def close(self) -> None:
        """End the processes."""
        for sandbox in self._sandboxes:
            sandbox.close()

    def __enter__(self) -> Builders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def build_job(part: Match | Region) -> BuildJob:
    """The job that compiles ``part``."""
    return BuildJob(spec_of(part))
