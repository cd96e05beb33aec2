"""Building processes that compile regions ahead of their timing."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType

from collage_evo.measure.jobs import BuildJob, Compiled, bare
from collage_evo.measure.pool import WorkerPool
from collage_evo.measure.sandbox import Sandbox
from collage_evo.patterns.match import Match, Region
from collage_evo.placement.failure import Failure, Fault
from collage_evo.target.slots import timing_slots

LONG_BUILD_S = 4.0
"""Processor time in seconds of a piece from which on its engine may use only half of the processes."""
_LATE = Failure(Fault.CLOSED, "no time was left to compile it")


class Builders:
    """Building processes next to a pool's worker processes, one for each core, started when first needed.

    On several threads only one placement is timed at once, and one process would compile its regions one after the
    other. So the next placements are compiled ahead, on every core; while something is timed, building processes are
    halted. Pieces pass through the cache on disk. A cluster's workers compile for themselves.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._sandboxes = [
            Sandbox(pool.setting, cores, pool.memory_bytes)
            for cores in timing_slots(pool.cores, pool.setting.target.threads)
            for _ in cores
        ] if pool.workers.local else []  # fmt: skip
        self._idle: queue.LifoQueue[Sandbox] = queue.LifoQueue()  # no more processes than regions at a time
        for sandbox in self._sandboxes:
            self._idle.put(sandbox)
        self._long: set[tuple[str, ...]] = set()
        """Engines of which a piece took long: they leave processes to others."""
        count = len(self._sandboxes) or 1
        self._quick, self._slow = ThreadPoolExecutor(count), ThreadPoolExecutor(max(1, count // 2))
        self._known: dict[BuildJob, Future[Compiled | Failure]] = {}
        self._again: set[BuildJob] = set()
        """Jobs tried once more after they had failed for what may have been the machine's fault of the moment."""

    def begin(self, job: BuildJob) -> Future[Compiled | Failure]:
        """Start compiling ``job``, unless it was compiled before; once more if it failed for a reason that may
        pass."""
        known = self._known.get(job)
        if known is not None and (job in self._again or not _may_pass(known)):
            return known
        if known is not None:
            self._again.add(job)
        if not self._sandboxes:
            self._known[job] = _left_to_workers()
        else:
            threads = self._slow if job.region.family in self._long else self._quick
            self._known[job] = threads.submit(self._build, job)
        return self._known[job]

    def build(self, jobs: Iterable[BuildJob], seconds: float = math.inf) -> Mapping[BuildJob, Failure]:
        """Compile all ``jobs``; returns why some cannot be compiled.

        After ``seconds`` the call stops waiting for the others, which go on: their answer is a failure
        (``Fault.CLOSED``).
        """
        begun = {job: self.begin(job) for job in jobs}
        done, _ = wait(begun.values(), None if math.isinf(seconds) else max(0.0, seconds))
        answers = {job: future.result() if future in done else _LATE for job, future in begun.items()}
        return {job: answer for job, answer in answers.items() if isinstance(answer, Failure)}

    def _build(self, job: BuildJob) -> Compiled | Failure:
        sandbox = self._idle.get()
        try:
            answer = sandbox.call(job, self._pool.timeout_s)
        finally:
            self._idle.put(sandbox)
        # ``seconds`` is processor time: by the clock any piece takes long on a shared machine, because building
        # processes wait, and are halted while something is timed.
        if answer.fault is Fault.HANG if isinstance(answer, Failure) else answer.seconds > LONG_BUILD_S:
            self._long.add(job.region.family)
        return answer

    def close(self) -> None:
        """End the processes; jobs that are not compiled yet stay so."""
        for threads in (self._quick, self._slow):
            threads.shutdown(wait=False, cancel_futures=True)
        for sandbox in self._sandboxes:
            sandbox.close()
        for threads in (self._quick, self._slow):
            threads.shutdown()

    def __enter__(self) -> Builders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _may_pass(known: Future[Compiled | Failure]) -> bool:
    """Whether the failure may not recur in a second attempt."""
    if not known.done() or known.cancelled():
        return False
    answer = known.result()
    return isinstance(answer, Failure) and answer.fault.passing


def _left_to_workers() -> Future[Compiled | Failure]:
    """The result for jobs that a cluster's workers compile when they need them."""
    future: Future[Compiled | Failure] = Future()
    future.set_result(Compiled())
    return future


def build_job(part: Match | Region) -> BuildJob:
    """The job that compiles ``part``."""
    return BuildJob(bare(part))
