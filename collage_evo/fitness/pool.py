"""Measures many jobs in parallel with joblib, one measuring process to each timing slot."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from joblib.externals.loky import get_reusable_executor

from collage_evo.errors import UnavailableError, one_line
from collage_evo.fitness.executor import LOCAL, Executor
from collage_evo.fitness.jobs import Answer, Job, Setting
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.slots import Slot, acquire_slot, timing_slots
from collage_evo.fitness.worker import exit_with_parent

MOST_IDLE = 10
"""Rounds in a row in which no job may be done, because workers die or are left out, before the pool gives up."""
CALLS_A_WORKER = 4
"""Reference jobs sent for each worker of a cluster, so that each is likely to get one."""
SLOT_PATIENCE_S = 5.0
"""How long a cluster's worker waits for cores that other workers of its machine hold."""
REFUSAL_REST_S = 0.3
"""Pause of a worker that is left out before it hands a job back, so that the others get it."""
SET_BY_CLUSTERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
"""Set by Dask's nanny and by Ray for their workers; a placement's threads must not depend on them."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Expected:
    """What every worker must agree on: latency of the reference job in ms, within the share ``margin``."""

    job: Job
    latency_ms: float
    margin: float

    def agrees(self, latency_ms: float) -> bool:
        """Whether a worker that took so long (ms) may measure."""
        return abs(latency_ms / self.latency_ms - 1) <= self.margin


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
    """Workers that were said to be left out."""

    @property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        return timing_slots(self.cores, self.setting.threads)

    def map(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Answers in the order of ``jobs``, each as soon as it and all before it are there.

        A job whose worker died, or was left out, is done by another; one that no worker survives is unfit.

        Raises:
            UnavailableError: the cluster cannot be reached, or all its workers die or are left out.
        """
        waiting = dict(enumerate(jobs))
        answers: dict[int, Answer] = {}
        given = idle = 0
        trouble = ""
        while waiting:
            before = len(waiting)
            try:
                for index, answer in self.executor.run(partial(_measure, self), dict(waiting), len(self.slots)):
                    if answer.left_out:
                        trouble = self._report(answer)
                        continue
                    answers[index] = answer
                    del waiting[index]
                    while given in answers:
                        yield answers.pop(given)
                        given += 1
            except BrokenExecutor as error:
                trouble = f"workers die: {one_line(error)}"
            idle = idle + 1 if len(waiting) == before else 0
            if waiting and idle == MOST_IDLE:
                raise UnavailableError(f"no worker could measure, {idle} times in a row; {trouble}")

    def agreed(self, job: Job, margin: float) -> tuple[MeasuringPool, Mapping[str, float]]:
        """The pool in which only workers measure that agree on ``job``, and each worker's latency in ms.

        On one machine there is nothing to agree on: the pool itself.

        Raises:
            UnavailableError: no worker could do ``job``.
        """
        if self.executor.local:
            return self, {}
        asking = replace(self, expected=Expected(job, 1.0, float("inf")))
        answers = list(asking.map([job] * (CALLS_A_WORKER * self.executor.workers())))
        took = {answer.worker: answer.reference_ms for answer in answers if answer.reference_ms is not None}
        if not took:
            raise UnavailableError(f"no worker survived the reference placement; {answers[0].reason}")
        expected = Expected(job, statistics.median_low(took.values()), margin)
        return replace(self, expected=expected), took

    def _report(self, answer: Answer) -> str:
        """Why a worker is left out, logged once."""
        why = answer.reason
        if answer.reference_ms is not None and self.expected is not None:
            took, expected = answer.reference_ms, self.expected.latency_ms
            why = f"{took:.2f} ms for the reference placement, expected {expected:.2f} ms"
        text = f"worker {answer.worker} is left out: {why}"
        if answer.worker not in self.reported:
            self.reported.add(answer.worker)
            _log.warning(text)
        return text

    @contextlib.contextmanager
    def quiet(self) -> Iterator[tuple[int, ...]]:
        """The first slot's cores while no other core times anything: for comparisons that decide."""
        self.close()
        slot = acquire_slot((self.cores,), self.setting.run)
        assert slot is not None
        try:
            yield self.slots[0]
        finally:
            slot.release()

    def close(self) -> None:
        """End this machine's measuring processes and free their cores."""
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
        _held.release()  # with a single slot joblib works in this process


class _Held:
    """What one worker keeps between jobs: its slot, its measuring process, its latency of the reference job."""

    def __init__(self) -> None:
        self.setting: Setting | None = None
        self.slots: tuple[tuple[int, ...], ...] = ()
        self.waited_for: tuple[tuple[int, ...], ...] = ()
        """Slots of which none was free in time: it does not wait for them again."""
        self.slot: Slot | None = None
        self.sandbox: Sandbox | None = None
        self.reference: tuple[Job, Answer] | None = None
        self.watched = False
        self.lock = threading.Lock()

    def measure(self, pool: MeasuringPool, job: Job) -> Answer:
        """The answer to ``job``; or, after a pause, one that is left out, when this worker may not measure."""
        with self.lock:  # a cluster's worker may have several threads
            sandbox = self._sandbox_of(pool)
            if sandbox is None:
                return self._refusal(Answer(reason="no timing slot is free on this machine"), None)
            if pool.expected is None:
                return replace(sandbox.call(job, pool.timeout_s), worker=self.name)
            if self.reference is None or self.reference[0] != pool.expected.job:
                self.reference = (pool.expected.job, sandbox.call(pool.expected.job, pool.timeout_s))
            answer = self.reference[1]
            took = statistics.median(answer.times_ms) if answer.times_ms else None
            if took is None or not pool.expected.agrees(took):
                return self._refusal(answer, took)
            if job != pool.expected.job:
                answer = sandbox.call(job, pool.timeout_s)
            return replace(answer, worker=self.name, reference_ms=took)

    def _refusal(self, answer: Answer, took: float | None) -> Answer:
        time.sleep(REFUSAL_REST_S)
        return replace(answer, worker=self.name, reference_ms=took, left_out=True)

    @property
    def name(self) -> str:
        """Machine, cores and process."""
        cores = self.slot.cores if self.slot is not None else ()
        return f"{socket.gethostname()}/{','.join(map(str, cores))}/{os.getpid()}"

    def _sandbox_of(self, pool: MeasuringPool) -> Sandbox | None:
        """The measuring process; None on a cluster's machine whose slots are all taken."""
        if self.sandbox is None or self.setting != pool.setting or self.slots != pool.slots:
            self.release()
            if not self.watched:
                if pool.executor.local:
                    exit_with_parent()
                else:
                    for variable in SET_BY_CLUSTERS:
                        os.environ.pop(variable, None)
                atexit.register(self.release)
                self.watched = True
            patience_s = None if pool.executor.local else 0.0 if self.waited_for == pool.slots else SLOT_PATIENCE_S
            self.slot = acquire_slot(pool.slots, pool.setting.run, patience_s=patience_s)
            if self.slot is None:
                self.waited_for = pool.slots
                return None
            self.sandbox = Sandbox(pool.setting, self.slot.cores, pool.memory_bytes)
            self.setting, self.slots = pool.setting, pool.slots
        return self.sandbox

    def release(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
        if self.slot is not None:
            self.slot.release()
        self.setting = self.slot = self.sandbox = self.reference = None


_held = _Held()


def _measure(pool: MeasuringPool, job: Job) -> Answer:
    return _held.measure(pool, job)
