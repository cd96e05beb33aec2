"""Workers of a Dask cluster: machines of one kind that see the run directory and the cache under the same paths.

Each worker measures on a timing slot of its own machine. joblib's own Dask back end waits forever for a call whose
workers died (joblib 1.6), so that threads of this process wait for the cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import logging
import os
import statistics
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from collage_evo.errors import UnavailableError, one_line
from collage_evo.extras import install
from collage_evo.fitness.jobs import Job, LeftOut, Measured, PlacementJob, Reply
from collage_evo.fitness.worker_slot import LATE, Call, Expected, Over, PoolConfig, WorkerSlot
from collage_evo.genome.failure import Failure, Fault

TIMEOUT_S = 10.0
"""Seconds without an answer after which the pool checks whether the cluster still has workers."""
SLOT_TIMEOUT_S = 5.0
"""Seconds that a worker waits for cores that other workers of its machine hold."""
SET_BY_DASK = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
"""Set by Dask's nanny for its workers; a placement's threads must not depend on them."""


@dataclass(frozen=True)
class DaskWorkers:
    """The workers of the scheduler at ``address``, such as ``tcp://10.0.0.1:8786``, that agree on ``expected``."""

    address: str
    expected: Expected | None = None
    connect_s: float = 10.0
    local = False

    @property
    def warning(self) -> str:
        """The warning to print before code goes to that address; empty within this machine and with TLS."""
        scheme, colons, rest = self.address.rpartition("://")
        host = rest.rpartition(":")[0].strip("[]") or rest
        if (colons and scheme == "tls") or _is_here(host):
            return ""
        return (
            f"{self.address} is beyond this machine and not addressed by TLS: who reaches it may run code on every "
            "machine of the cluster (docs/cluster.md)"
        )

    @contextlib.contextmanager
    def connected(self, config: PoolConfig, over: Over) -> Iterator[tuple[Call, int]]:
        """A call that Dask tries again on another worker when one dies, for twice as many threads as workers.

        Raises:
            UnavailableError: the cluster cannot be reached, or has no worker; so does the call, and if its workers
                cannot do it.
            BrokenExecutor: by the call: workers or the cluster went away with it.
        """
        with self._client() as client:
            yield partial(self._ask, client, config, over), 2 * _count(client)

    def expecting(self, expected: Expected) -> DaskWorkers:
        return replace(self, expected=expected)

    def count(self) -> int:
        with self._client() as client:
            return _count(client)

    def close(self) -> None:
        """No processes of this machine are theirs."""

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        distributed = _dask()
        # the run reports workers that go in its own words
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            client = distributed.Client(self.address, timeout=self.connect_s, set_as_default=False)
        except (OSError, TypeError, ValueError) as error:  # TLS without certificates raises a TypeError
            raise UnavailableError(
                f"no Dask scheduler answers at {self.address} ({one_line(error)}): start one with 'dask scheduler', "
                f"and 'dask worker {self.address} --nthreads 1' on each machine; then continue an interrupted run "
                "with: resume RUN_DIR"
            ) from None
        with client:
            self._require_workers(client)
            yield client

    def _require_workers(self, client: Any) -> None:
        if not _count(client):
            raise UnavailableError(
                f"the Dask scheduler at {self.address} has no workers: start "
                f"'dask worker {self.address} --nthreads 1' on each machine"
            )

    def _ask(self, client: Any, config: PoolConfig, over: Over, job: Job) -> Reply[Any] | LeftOut:
        if over():
            return LATE
        distributed = _dask()
        future = client.submit(measure_on_worker, config, self.expected, job, pure=False)
        while True:
            # Dask knows the waiting client by thread. result() reports a call that was given up.
            with client.as_current(), contextlib.suppress(TimeoutError, distributed.CancelledError):
                distributed.wait(future, timeout=TIMEOUT_S)
            if future.done():
                break
            self._require_workers(client)
        if future.status == "finished":
            answered: Reply[Any] | LeftOut = future.result()
            return answered
        if future.status != "error":
            raise BrokenExecutor("the connection to the Dask scheduler was lost")
        error = future.exception()
        if isinstance(error, distributed.KilledWorker):
            return Reply(Failure(Fault.WORKERS_DIED, f"workers that tried: {error.allowed_failures + 1}"))
        raise UnavailableError(f"a Dask worker cannot measure: {type(error).__name__}: {one_line(error)}") from error


def _dask() -> Any:
    try:
        import distributed  # optional, and slow to import
    except ImportError:
        raise UnavailableError(f"fitness.executor is dask, which is not installed: {install('cluster')}") from None
    return distributed


def _count(client: Any) -> int:
    """How many calls can run at once now. Raises BrokenExecutor if the scheduler is gone."""
    try:
        return len(client.scheduler_info(n_workers=-1)["workers"])
    except (OSError, ValueError) as error:
        raise BrokenExecutor(f"the Dask scheduler does not answer: {one_line(error)}") from None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ClusterWorker:
    """A worker's side: one worker slot for all its threads, which take turns."""

    def __init__(self, worker_slot: WorkerSlot) -> None:
        self._worker_slot = worker_slot
        self._reference: tuple[PoolConfig, PlacementJob, Measured | Failure] | None = None
        self._lock = threading.Lock()

    def measure(self, config: PoolConfig, expected: Expected | None, job: Job) -> Reply[Any] | LeftOut:
        """The reply to ``job``; or the reason why this worker may not measure, such as another latency than
        ``expected``."""
        with self._lock:
            sandbox = self._worker_slot.sandbox(config)
            if isinstance(sandbox, LeftOut):
                return sandbox
            if expected is None:
                return Reply(sandbox.call(job, config.timeout_s), self._worker_slot.name)
            if self._reference is None or self._reference[:2] != (config, expected.job):
                self._reference = config, expected.job, sandbox.call(expected.job, config.timeout_s)
            reference = self._reference[2]
            if isinstance(reference, Failure):
                return self._worker_slot.left_out(str(reference))
            took = statistics.median(reference.times_ms)
            if not expected.agrees(took):
                wanted = f"expected {expected.latency_ms:.2f} ms"
                return self._worker_slot.left_out(f"{took:.2f} ms for the reference placement, {wanted}", took)
            answer = reference if job == expected.job else sandbox.call(job, config.timeout_s)
            return Reply(answer, self._worker_slot.name, took)


_starting = threading.Lock()
_worker: list[ClusterWorker] = []
"""The one of this process, once it is needed."""


def measure_on_worker(config: PoolConfig, expected: Expected | None, job: Job) -> Reply[Any] | LeftOut:
    """The call that a cluster's workers run: :meth:`ClusterWorker.measure` on the process's own slot."""
    with _starting:
        if not _worker:
            for variable in SET_BY_DASK:
                os.environ.pop(variable, None)
            worker_slot = WorkerSlot(SLOT_TIMEOUT_S)
            atexit.register(worker_slot.close)
            _worker.append(ClusterWorker(worker_slot))
    return _worker[0].measure(config, expected, job)
