"""Worker slots of this machine: groups of cores, each with a worker process on them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from collage_evo.fitness.fork_server import start_worker
from collage_evo.fitness.jobs import Job, LeftOut, PlacementJob, Reply, Setting
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.slots import Slot, acquire_slot, timing_slots

CLOSED: Reply[Any] = Reply(Failure(Fault.CLOSED, "the measuring processes were ended"))
LATE: Reply[Any] = Reply(Failure(Fault.CLOSED, "no time was left"))
Over = Callable[[], bool]
"""Whether time is over."""


@dataclass(frozen=True)
class PoolConfig:
    """Settings that every slot of one pool shares; they travel to the machines of a cluster."""

    setting: Setting
    cores: tuple[int, ...]
    memory_bytes: int
    timeout_s: float

    @property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        """The groups of cores, of which each worker slot holds one. An accelerator is one slot, whatever the number
        of cores."""
        slots = timing_slots(self.cores, self.setting.target.threads * self.setting.sessions)
        return slots[:1] if self.setting.target.accelerated else slots

    def process(self, cores: tuple[int, ...]) -> Sandbox:
        """A measuring or compiling process on ``cores``."""
        return Sandbox(self.setting, cores, self.memory_bytes, partial(start_worker, python=self.setting.python))


@dataclass(frozen=True)
class Expected:
    """Values that every worker must agree on: latency of the reference job in ms, within the share ``margin``."""

    job: PlacementJob
    latency_ms: float
    margin: float

    def agrees(self, latency_ms: float) -> bool:
        """Whether a worker with this latency (ms) may measure."""
        return abs(latency_ms / self.latency_ms - 1) <= self.margin


Call = Callable[[Job], Reply[Any] | LeftOut]
"""The reply to a job, or why it is left to another worker."""


class Workers(Protocol):
    """Where a pool's jobs run: on worker slots of this machine, or on a cluster."""

    @property
    def local(self) -> bool:
        """Whether all jobs run on this machine."""

    @property
    def warning(self) -> str:
        """The warning to print before jobs go there; empty if there is none."""

    def connected(self, config: PoolConfig, over: Over) -> AbstractContextManager[tuple[Call, int]]:
        """The call that answers one job of a pool, for any thread, and how many threads may use it at once.

        Jobs that would begin when time is ``over`` are answered with :data:`LATE`.
        """

    def expecting(self, expected: Expected) -> Workers:
        """The same, without those that do not agree on ``expected``; those of one machine need not."""

    def count(self) -> int:
        """How many there are. Raises as :meth:`connected`."""

    def close(self) -> None:
        """End the processes of this machine, and free their cores."""


class WorkerSlot:
    """One slot and one worker process, acquired with the first job and reused for the next. Not thread-safe.

    Args:
        timeout_s: how long it waits for a free slot; None waits without limit.
        closing: an event that another thread sets to end the wait.
        rest_s: how long it pauses before it returns a job that it may not do, so that other workers get it.
    """

    def __init__(
        self, timeout_s: float | None = None, closing: threading.Event | None = None, rest_s: float = 0.3
    ) -> None:
        self._timeout_s, self._rest_s = timeout_s, rest_s
        self._closing = closing or threading.Event()
        self._config: PoolConfig | None = None
        self._waited_for: tuple[tuple[int, ...], ...] = ()
        """Slots of which none was free in time: it does not wait for them again."""
        self._slot: Slot | None = None
        self._sandbox: Sandbox | None = None
        self._changing = threading.Lock()
        """Held while what it has is given to it or taken from it: it is closed by another thread than uses it."""

    @property
    def name(self) -> str:
        """Machine, cores and process."""
        slot = self._slot  # another thread may close it
        cores = slot.cores if slot is not None else ()
        return f"{socket.gethostname()}/{','.join(map(str, cores))}/{os.getpid()}"

    def sandbox(self, config: PoolConfig) -> Sandbox | LeftOut:
        """The worker process; or, after a pause, the reason why this slot may not measure."""
        if foreign := config.setting.target.foreign:
            return self.left_out(foreign)
        if self._sandbox is not None and self._config == config:
            return self._sandbox
        self.close()
        timeout_s = 0.0 if self._waited_for == config.slots else self._timeout_s
        slot = acquire_slot(
            config.slots, config.setting.run, timeout_s, self._closing, config.setting.target.locks
        )
        if slot is None:
            self._waited_for = config.slots
            return self.left_out("no timing slot is free on this machine")
        sandbox = config.process(slot.cores)
        with self._changing:
            self._slot, self._sandbox, self._config = slot, sandbox, config
        if self._closing.is_set():  # set by another thread before the cores were free
            self.close()
        return sandbox

    def left_out(self, why: str, reference_ms: float | None = None) -> LeftOut:
        """The reason why this slot may not measure, after a pause."""
        time.sleep(self._rest_s)
        return LeftOut(self.name, why, reference_ms)

    def close(self) -> None:
        """End the process and release the cores."""
        with self._changing:
            sandbox, slot = self._sandbox, self._slot
            self._config = self._slot = self._sandbox = None
        if sandbox is not None:
            sandbox.close()
        if slot is not None:
            slot.release()


class LocalWorkers:
    """Worker slots of this machine, opened as jobs need them, and closed together; later jobs open new ones."""

    local, warning = True, ""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._all: list[WorkerSlot] = []
        self._idle: list[WorkerSlot] = []
        self._closing = threading.Event()
        """Of the slots that are open now: who was connected to them opens no others."""

    def expecting(self, expected: Expected) -> LocalWorkers:
        return self

    def count(self) -> int:
        return 1

    @contextlib.contextmanager
    def connected(self, config: PoolConfig, over: Over) -> Iterator[tuple[Call, int]]:
        yield partial(self._measure, config, over, self._closing), len(config.slots)

    def _measure(
        self, config: PoolConfig, over: Over, closing: threading.Event, job: Job
    ) -> Reply[Any] | LeftOut:
        """``job``'s reply, from an idle slot or a new one."""
        if over():
            return LATE
        with self._changing:
            if closing.is_set():
                return CLOSED
            if self._idle:
                worker_slot = self._idle.pop()
            else:
                worker_slot = WorkerSlot(closing=closing)
                self._all.append(worker_slot)
        try:
            reply: Reply[Any] | LeftOut
            if isinstance(sandbox := worker_slot.sandbox(config), LeftOut):
                reply = sandbox
            else:
                reply = Reply(sandbox.call(job, config.timeout_s), worker_slot.name)
            return CLOSED if closing.is_set() else reply
        finally:
            with self._changing:
                if not closing.is_set():
                    self._idle.append(worker_slot)

    def close(self) -> None:
        """End all processes and free their cores. Pending calls get an answer that does not count."""
        with self._changing:
            self._closing.set()
            closed, self._all, self._idle, self._closing = self._all, [], [], threading.Event()
        for worker_slot in closed:
            worker_slot.close()
