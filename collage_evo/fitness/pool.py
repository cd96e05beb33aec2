"""Measures many jobs in parallel with joblib, one measuring process to each timing slot."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

from collage_evo.fitness.jobs import Answer, Job, Setting
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.slots import Slot, acquire_slot, timing_slots
from collage_evo.fitness.worker import exit_with_parent


@dataclass(frozen=True)
class MeasuringPool:
    """Timing slots of one target."""

    setting: Setting
    cores: tuple[int, ...]
    memory_bytes: int
    timeout_s: float

    @property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        return timing_slots(self.cores, self.setting.threads)

    def map(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Answers in the order of ``jobs``, each as soon as it and all before it are there."""
        parallel = Parallel(
            n_jobs=len(self.slots),
            backend="loky",
            return_as="generator",
            pre_dispatch="2*n_jobs",
            batch_size=1,
        )
        yield from parallel(delayed(_measure)(self, job) for job in jobs)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[tuple[int, ...]]:
        """The first slot's cores while no other core times anything: for comparisons that decide."""
        self.close()
        slot = acquire_slot((self.cores,))
        try:
            yield self.slots[0]
        finally:
            slot.release()

    def close(self) -> None:
        """End the measuring processes and free their cores."""
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
        _held.release()  # with a single slot joblib works in this process


class _Held:
    """What one joblib worker keeps between jobs: its slot and its measuring process."""

    pool: MeasuringPool | None = None
    slot: Slot | None = None
    sandbox: Sandbox | None = None
    watched = False

    def sandbox_of(self, pool: MeasuringPool) -> Sandbox:
        if self.pool != pool or self.sandbox is None:
            self.release()
            if not self.watched:
                exit_with_parent()
                atexit.register(self.release)
                self.watched = True
            self.slot = acquire_slot(pool.slots)
            self.sandbox = Sandbox(pool.setting, self.slot.cores, pool.memory_bytes)
            self.pool = pool
        return self.sandbox

    def release(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
        if self.slot is not None:
            self.slot.release()
        self.sandbox = self.slot = self.pool = None


_held = _Held()


def _measure(pool: MeasuringPool, job: Job) -> Answer:
    return _held.sandbox_of(pool).call(job, pool.timeout_s)
