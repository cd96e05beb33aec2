"""Pool that measures jobs in parallel with joblib, one worker process for each timing slot."""

from __future__ import annotations

import contextlib
import logging
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from collage_evo.errors import UnavailableError, one_line
from collage_evo.measure.executor import LOCAL, Executor
from collage_evo.measure.jobs import A, Asks, Job, LeftOut, PlacementJob, Reply, Setting
from collage_evo.measure.worker_slot import Expected, LocalPool, PoolConfig, measure_on_worker
from collage_evo.target.slots import acquire_slot

if TYPE_CHECKING:
    from collage_evo.measure.cluster import Call  # Dask is optional

MOST_IDLE = 10
"""Consecutive rounds without an answer, because workers die or are excluded, before the pool gives up."""
CALLS_A_WORKER = 4
"""Reference jobs sent for each worker of a cluster, so that each is likely to get one."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MeasuringPool:
    """Timing slots of one target, on this machine or on each of a cluster's."""

    setting: Setting
    cores: tuple[int, ...]
    memory_bytes: int
    timeout_s: float
    executor: Executor = LOCAL
    expected: Expected | None = None
    reported: set[str] = field(default_factory=set, compare=False)
    """Excluded workers that were reported."""
    local_pool: LocalPool = field(default_factory=LocalPool, compare=False, repr=False)
    """The worker pool of this machine."""

    @property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        return self._config.slots

    @property
    def _config(self) -> PoolConfig:
        return PoolConfig(self.setting, self.cores, self.memory_bytes, self.timeout_s)

    @property
    def _call(self) -> Call:
        if self.executor.local:
            return partial(self.local_pool.worker_pool.measure, self._config)
        return partial(measure_on_worker, self._config, self.expected)

    def map(self, jobs: Sequence[Asks[A]], over: Callable[[], bool] = lambda: False) -> Iterator[Reply[A]]:
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
                for index, reply in self.executor.run(self._call, dict(waiting), len(self.slots), over):
                    if isinstance(reply, LeftOut):
                        trouble = self._report(reply)
                        continue
                    replies[index] = reply
                    del waiting[index]
                    while given in replies:
                        yield replies.pop(given)
                        given += 1
            except BrokenExecutor as error:
                trouble = f"workers die: {one_line(error)}"
            idle = idle + 1 if len(waiting) == before else 0
            if waiting and idle == MOST_IDLE:
                raise UnavailableError(f"no worker could measure, {idle} times in a row; {trouble}")

    def agreed(self, job: PlacementJob, margin: float) -> tuple[MeasuringPool, Mapping[str, float]]:
        """A pool restricted to workers that agree on ``job``, and each worker's latency in ms.

        On one machine no agreement is needed: returns the pool itself.

        Raises:
            UnavailableError: no worker could do ``job``.
        """
        if self.executor.local:
            return self, {}
        asking = replace(self, expected=Expected(job, 1.0, float("inf")))
        replies = list(asking.map([job] * (CALLS_A_WORKER * self.executor.workers())))
        took = {reply.worker: reply.reference_ms for reply in replies if reply.reference_ms is not None}
        if not took:
            raise UnavailableError(f"no worker survived the reference placement; {replies[0].answer}")
        expected = Expected(job, statistics.median_low(took.values()), margin)
        return replace(self, expected=expected), took

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
        slot = acquire_slot((self.cores,), self.setting.run, device=self.setting.target.device)
        assert slot is not None
        try:
            yield self.slots[0]
        finally:
            slot.release()

    def close(self) -> None:
        """End this machine's measuring processes and free their cores."""
        self.local_pool.close()
