"""Worker slots: a timing slot with a worker process on it, and pools of these."""

from __future__ import annotations

import atexit
import os
import queue
import socket
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

from collage_evo.measure.jobs import Job, LeftOut, Measured, PlacementJob, Reply, Setting
from collage_evo.measure.sandbox import Sandbox
from collage_evo.placement.failure import Failure, Fault
from collage_evo.target.slots import Slot, acquire_slot, timing_slots
from collage_evo.target.target import CPU

SLOT_TIMEOUT_S = 5.0
"""Seconds that a cluster's worker waits for cores that other workers of its machine hold."""
REFUSAL_REST_S = 0.3
"""Seconds that an excluded worker pauses before it returns a job, so that other workers get it."""
SET_BY_DASK = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
"""Set by Dask's nanny for its workers; a placement's threads must not depend on them."""


@dataclass(frozen=True)
class Expected:
    """Values that every worker must agree on: latency of the reference job in ms, within the share ``margin``."""

    job: PlacementJob
    latency_ms: float
    margin: float

    def agrees(self, latency_ms: float) -> bool:
        """Whether a worker with this latency (ms) may measure."""
        return abs(latency_ms / self.latency_ms - 1) <= self.margin


@dataclass(frozen=True)
class PoolConfig:
    """Settings that every slot of one pool shares; they travel to the machines of a cluster."""

    setting: Setting
    cores: tuple[int, ...]
    memory_bytes: int
    timeout_s: float

    @property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        """The groups of cores, of which each worker slot holds one. A device is one slot, whatever the number of
        cores."""
        slots = timing_slots(self.cores, self.setting.target.threads * self.setting.sessions)
        return slots if self.setting.target.device == CPU else slots[:1]


class WorkerSlot:
    """One slot and one worker process, acquired with the first job and reused for the next. Not thread-safe.

    Args:
        timeout_s: how long it waits for a free slot; None waits without limit.
        closing: an event that another thread sets to end the wait.
    """

    def __init__(self, timeout_s: float | None = None, closing: threading.Event | None = None) -> None:
        self._timeout_s = timeout_s
        self._closing = closing or threading.Event()
        self._config: PoolConfig | None = None
        self._waited_for: tuple[tuple[int, ...], ...] = ()
        """Slots of which none was free in time: it does not wait for them again."""
        self._slot: Slot | None = None
        self._sandbox: Sandbox | None = None
        self._reference: tuple[PlacementJob, Measured | Failure] | None = None
        self._changing = threading.Lock()
        """Held while what it has is given to it or taken from it: it is closed by another thread than uses it."""

    def measure(self, job: Job, config: PoolConfig, expected: Expected | None) -> Reply[Any] | LeftOut:
        """The reply to ``job``; or, after a pause, the reason why this slot may not measure."""
        if foreign := config.setting.target.foreign:
            return self._left_out(foreign)
        sandbox = self._sandbox_for(config)
        if sandbox is None:
            return self._left_out("no timing slot is free on this machine")
        if expected is None:
            return Reply(sandbox.call(job, config.timeout_s), self.name)
        known = self._reference
        if known is None or known[0] != expected.job:
            known = self._reference = (expected.job, sandbox.call(expected.job, config.timeout_s))
        reference = known[1]
        if isinstance(reference, Failure):
            return self._left_out(str(reference))
        took = statistics.median(reference.times_ms)
        if not expected.agrees(took):
            wanted = f"expected {expected.latency_ms:.2f} ms"
            return self._left_out(f"{took:.2f} ms for the reference placement, {wanted}", took)
        answer = reference if job == expected.job else sandbox.call(job, config.timeout_s)
        return Reply(answer, self.name, took)

    @property
    def name(self) -> str:
        """Machine, cores and process."""
        slot = self._slot  # another thread may close it
        cores = slot.cores if slot is not None else ()
        return f"{socket.gethostname()}/{','.join(map(str, cores))}/{os.getpid()}"

    def close(self) -> None:
        """End the process and release the cores."""
        with self._changing:
            sandbox, slot = self._sandbox, self._slot
            self._config = self._slot = self._sandbox = self._reference = None
        if sandbox is not None:
            sandbox.close()
        if slot is not None:
            slot.release()

    def _left_out(self, why: str, took: float | None = None) -> LeftOut:
        time.sleep(REFUSAL_REST_S)
        return LeftOut(self.name, why, took)

    def _sandbox_for(self, config: PoolConfig) -> Sandbox | None:
        """The worker process; None if no slot became free."""
        if self._sandbox is None or self._config != config:
            self.close()
            timeout_s = 0.0 if self._waited_for == config.slots else self._timeout_s
            slot = acquire_slot(
                config.slots, config.setting.run, timeout_s, self._closing, config.setting.target.device
            )
            if slot is None:
                self._waited_for = config.slots
                return None
            made = Sandbox(config.setting, slot.cores, config.memory_bytes)
            with self._changing:
                self._slot, self._sandbox, self._config = slot, made, config
            if self._closing.is_set():  # set by another thread before the cores were free
                self.close()
                return None
            return made
        return self._sandbox


class WorkerPool:
    """Worker slots that are opened as jobs need them and closed together, finally."""

    def __init__(self) -> None:
        self._idle: queue.LifoQueue[WorkerSlot] = queue.LifoQueue()
        self._all: list[WorkerSlot] = []
        self._closing = threading.Event()

    def measure(self, config: PoolConfig, job: Job) -> Reply[Any] | LeftOut:
        """``job``'s reply, from an idle slot or a new one."""
        closed: Reply[Any] = Reply(Failure(Fault.CLOSED, "the measuring processes were ended"))
        if self._closing.is_set():
            return closed
        try:
            worker_slot = self._idle.get_nowait()
        except queue.Empty:
            worker_slot = WorkerSlot(closing=self._closing)
            self._all.append(worker_slot)
        try:
            reply = worker_slot.measure(job, config, None)
        finally:
            self._idle.put(worker_slot)
        return closed if self._closing.is_set() else reply

    def close(self) -> None:
        """End all processes and free their cores. Pending calls get an answer that does not count."""
        self._closing.set()
        for worker_slot in self._all:
            worker_slot.close()


class LocalPool:
    """This machine's worker pool, and a new one after it was closed. A copy sent to another machine starts without
    one."""

    def __init__(self) -> None:
        self.worker_pool = WorkerPool()

    def close(self) -> None:
        """End the pool's processes and free its cores."""
        self.worker_pool.close()
        self.worker_pool = WorkerPool()

    def __reduce__(self) -> tuple[type[LocalPool], tuple[()]]:
        return LocalPool, ()


class _OfWorker:
    """The single worker slot of a cluster's worker process; its threads take turns."""

    def __init__(self) -> None:
        self._worker_slot: WorkerSlot | None = None
        self._lock = threading.Lock()

    def measure(
        self, config: PoolConfig, expected: Expected | None, job: Job
    ) -> Reply[Any] | LeftOut:
        with self._lock:
            if self._worker_slot is None:
                for variable in SET_BY_DASK:
                    os.environ.pop(variable, None)
                self._worker_slot = WorkerSlot(SLOT_TIMEOUT_S)
                atexit.register(self._worker_slot.close)
            return self._worker_slot.measure(job, config, expected)


_of_worker = _OfWorker()


def measure_on_worker(config: PoolConfig, expected: Expected | None, job: Job) -> Reply[Any] | LeftOut:
    """The call of a cluster's worker: runs ``job`` on its own slot, and refuses if it disagrees with ``expected``."""
    return _of_worker.measure(config, expected, job)
