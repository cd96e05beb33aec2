"""Executors of jobs: this machine, or a Dask cluster.

joblib maps the jobs over threads, each of which waits for a worker process of this machine (``local``) or for a Dask
cluster (``dask``) of machines of one kind that see the run directory and the cache under the same paths; each worker
measures on timing slots of its own machine. joblib's own Dask back end waits forever for a call whose workers died
(joblib 1.6).
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import joblib

from collage_evo.errors import ConfigError
from collage_evo.measure.jobs import Job, LeftOut, Reply
from collage_evo.placement.failure import Failure, Fault

if TYPE_CHECKING:
    from collage_evo.measure.cluster import Call, Cluster

TIMEOUT_S = 10.0
"""Seconds without an answer after which the pool checks whether the cluster still has workers."""


@dataclass(frozen=True)
class Executor:
    """``kind`` is ``local`` or ``dask``; ``address`` is the scheduler's, such as ``tcp://10.0.0.1:8786``."""

    kind: str = "local"
    address: str = ""

    def __post_init__(self) -> None:
        if not self.local and not self.address:
            raise ConfigError("fitness.address is missing: give the scheduler's, such as tcp://10.0.0.1:8786")

    @property
    def local(self) -> bool:
        """Whether all jobs run on this machine."""
        return self.kind == "local"

    @property
    def warning(self) -> str:
        """The warning to print before code goes to that address; empty within this machine and with TLS."""
        scheme, colons, rest = self.address.rpartition("://")
        host = rest.rpartition(":")[0].strip("[]") or rest
        if self.local or (colons and scheme == "tls") or _is_here(host):
            return ""
        return (
            f"{self.address} is beyond this machine and not addressed by TLS: who reaches it may run code on every "
            "machine of the cluster (docs/cluster.md)"
        )

    def run(
        self, call: Call, jobs: Mapping[int, Job], slots: int, over: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, Reply[Any] | LeftOut]]:
        """Results of ``call`` for each job, with the job's number, in any order.

        On this machine ``slots`` threads share the jobs; on a cluster all its workers do. The answer of a job that no
        worker survived is that failure, and the answer of one that starts when time is ``over`` is a failure too.

        Raises:
            BrokenExecutor: workers or the cluster went away with unanswered jobs; call again.
            UnavailableError: the cluster cannot be reached, or has no worker, or its workers cannot do the call.
        """
        if self.local:
            yield from _map(slots, partial(_in_time, over, call), jobs)
            return
        with self._cluster() as cluster:
            asking = partial(_in_time, over, partial(self._ask, cluster, call))
            yield from _map(2 * cluster.workers(), asking, jobs)

    def _ask(self, cluster: Cluster, call: Call, job: Job) -> Reply[Any] | LeftOut:
        future = cluster.submit(call, job)
        while not cluster.done(future, TIMEOUT_S):
            cluster.require_workers()
        return cluster.result(future)

    def workers(self) -> int:
        """Workers of the cluster; 1 for this machine."""
        if self.local:
            return 1
        with self._cluster() as cluster:
            return cluster.workers()

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        from collage_evo.measure.cluster import connect  # Dask is optional and need not be installed here

        with connect(self.address) as cluster:
            cluster.require_workers()
            yield cluster


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _map(workers: int, call: Call, jobs: Mapping[int, Job]) -> Iterator[tuple[int, Reply[Any] | LeftOut]]:
    parallel = joblib.Parallel(workers, backend="threading", return_as="generator_unordered", batch_size=1)
    yield from parallel(joblib.delayed(_numbered)(call, index, job) for index, job in jobs.items())


def _in_time(over: Callable[[], bool], call: Call, job: Job) -> Reply[Any] | LeftOut:
    return Reply(Failure(Fault.CLOSED, "no time was left")) if over() else call(job)


def _numbered(call: Call, index: int, job: Job) -> tuple[int, Reply[Any] | LeftOut]:
    return index, call(job)


LOCAL = Executor()
