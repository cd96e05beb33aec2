"""Pool of worker processes, of this machine or of a cluster, over which joblib's threads map jobs."""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field, replace
from typing import Any, cast

import joblib

from collage_evo.errors import ConfigError, UnavailableError, one_line
from collage_evo.fitness.cluster import DaskWorkers
from collage_evo.fitness.jobs import A, Asks, Job, LeftOut, PlacementJob, Reply
from collage_evo.fitness.worker_slot import Expected, LocalWorkers, Over, PoolConfig, Workers
from collage_evo.hardware.slots import acquire_slot

MOST_IDLE = 10
"""Consecutive rounds without an answer, because workers die or are excluded, before the pool gives up."""
CALLS_A_WORKER = 4
"""Reference jobs sent for each worker of a cluster, so that each is likely to get one."""
_log = logging.getLogger(__name__)


def workers_of(kind: str, address: str) -> Workers:
    """The workers that a configuration names: ``local``, or ``dask`` with its scheduler's address."""
    if kind == "local":
        return LocalWorkers()
    if not address:
        raise ConfigError("fitness.address is missing: give the scheduler's, such as tcp://10.0.0.1:8786")
    return DaskWorkers(address)


@dataclass(frozen=True)
class WorkerPool:
    """Timing slots of one target, on this machine or on each of a cluster's, with a worker process on each."""

    config: PoolConfig
    workers: Workers = field(default_factory=LocalWorkers, compare=False, repr=False)
    """Pools with other settings of one run share them: call :meth:`close` between the use of two with other slots."""
    reported: set[str] = field(default_factory=set, compare=False)
    """Excluded workers that were reported."""

    def changed(self, **setting: Any) -> WorkerPool:
        """The pool with some values of its setting changed."""
        return replace(self, config=replace(self.config, setting=replace(self.config.setting, **setting)))

    def map(self, jobs: Sequence[Asks[A]], over: Over = lambda: False) -> Iterator[Reply[A]]:
        """Replies in the order of ``jobs``, each as soon as it and all before it have arrived.

        Once time is ``over`` no job begins: the answer of the remaining ones is a failure (``Fault.CLOSED``). If a
        worker died or is excluded, another one does its job; a job that no worker survives is unfit.

        Raises:
            UnavailableError: the cluster cannot be reached, or all its workers die or are excluded.
        """
        waiting = dict(enumerate(cast(Sequence[Job], jobs)))
        replies: dict[int, Reply[Any]] = {}
        given = idle = 0
        trouble = ""
        while waiting:
            before = len(waiting)
            try:
                with self.workers.connected(self.config, over) as (call, threads):
                    answer = joblib.delayed(lambda number, job, call=call: (number, call(job)))
                    asked = [answer(number, job) for number, job in waiting.items()]
                    # One job is done in this thread: joblib takes tens of milliseconds to start and end others.
                    threads = min(threads, len(asked))
                    parallel = joblib.Parallel(
                        threads, backend="threading", return_as="generator_unordered", batch_size=1
                    )
                    for number, reply in parallel(asked):
                        if isinstance(reply, LeftOut):
                            trouble = self._report(reply)
                            continue
                        replies[number] = reply
                        del waiting[number]
                        while given in replies:
                            yield replies.pop(given)
                            given += 1
            except BrokenExecutor as error:
                trouble = f"workers die: {one_line(error)}"
            idle = idle + 1 if len(waiting) == before else 0
            if waiting and idle == MOST_IDLE:
                raise UnavailableError(f"no worker could measure, {idle} times in a row; {trouble}")

    def agreed(self, job: PlacementJob, margin: float) -> tuple[WorkerPool, Sequence[tuple[str, float, bool]]]:
        """A pool restricted to workers that agree on ``job``; and of each worker its name, its latency in ms and
        whether it agrees.

        On one machine no agreement is needed: returns the pool itself.

        Raises:
            UnavailableError: no worker could do ``job``.
        """
        if self.workers.local:
            return self, ()
        asking = replace(self, workers=self.workers.expecting(Expected(job, 1.0, math.inf)))
        replies = list(asking.map([job] * (CALLS_A_WORKER * self.workers.count())))
        took = {reply.worker: reply.reference_ms for reply in replies if reply.reference_ms is not None}
        if not took:
            raise UnavailableError(f"no worker survived the reference placement; {replies[0].answer}")
        expected = Expected(job, statistics.median_low(took.values()), margin)
        asked = [(worker, latency_ms, expected.agrees(latency_ms)) for worker, latency_ms in took.items()]
        return replace(self, workers=self.workers.expecting(expected)), asked

    def _report(self, left: LeftOut) -> str:
        """Log why a worker is excluded, once."""
        text = f"worker {left.worker} is left out: {left.why}"
        if left.worker not in self.reported:
            self.reported.add(left.worker)
            _log.warning(text)
        return text

    @contextlib.contextmanager
    def uncontended(self) -> Iterator[tuple[int, ...]]:
        """The first slot's cores while no other core times anything: for comparisons that decide."""
        self.close()
        setting = self.config.setting
        slot = acquire_slot((self.config.cores,), setting.run, besides=setting.target.locks)
        assert slot is not None
        try:
            yield self.config.slots[0]
        finally:
            slot.release()

    def close(self) -> None:
        """End this machine's measuring processes and free their cores."""
        self.workers.close()
