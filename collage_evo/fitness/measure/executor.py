"""Where jobs run: takes an executor's kind and address and jobs, gives each one's answer as soon as it is there.

joblib maps the jobs over threads, each of which waits for a measuring process of this machine (``local``) or for a
cluster. ``dask`` and ``ray`` are clusters of machines of one kind that see the run directory and the cache under the
same paths; each worker measures on timing slots of its own machine. joblib's own Dask back end waits for ever on a
call whose workers died (joblib 1.6), and its Ray back end starts every worker anew for each batch and cannot give
answers one by one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import joblib

from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.measure.answers import LeftOut, Reply
from collage_evo.fitness.measure.cluster import Call, Cluster, WorkersDied
from collage_evo.fitness.measure.jobs import Job

PATIENCE_S = 10.0
"""How long an answer may take before it is asked whether the cluster still has workers."""
EXAMPLES = {"dask": "tcp://10.0.0.1:8786", "ray": "10.0.0.1:6379"}


@dataclass(frozen=True)
class Executor:
    """``kind`` is ``local``, ``dask`` or ``ray``; ``address`` is the cluster's, such as ``tcp://10.0.0.1:8786``."""

    kind: str = "local"
    address: str = ""

    def __post_init__(self) -> None:
        if not self.local and not self.address:
            raise ConfigError(f"fitness.address is missing: give the cluster's, such as {EXAMPLES[self.kind]}")

    @property
    def local(self) -> bool:
        """Whether all jobs run on this machine."""
        return self.kind == "local"

    @property
    def warning(self) -> str:
        """What a person should hear before code goes to that address; nothing within this machine and by TLS."""
        scheme, colons, rest = self.address.rpartition("://")
        host = rest.rpartition(":")[0].strip("[]") or rest
        by_tls = os.environ.get("RAY_USE_TLS") == "1" if self.kind == "ray" else colons and scheme == "tls"
        if self.local or by_tls or _is_here(host):
            return ""
        return (
            f"{self.address} is beyond this machine and not addressed by TLS: who reaches it may run code on every "
            "machine of the cluster (docs/cluster.md)"
        )

    def run(
        self, call: Call, jobs: Mapping[int, Job], slots: int, over: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, Reply[Any] | LeftOut]]:
        """What ``call`` answers to each job, with the job's number, in any order.

        On this machine ``slots`` workers share the jobs; on a cluster all its workers do. A job that no worker
        survived is answered with that failure, and one that comes when time is ``over`` with a failure that says so.

        Raises:
            BrokenExecutor: workers or the cluster went away with jobs that are not answered; ask again.
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
        while not cluster.done(future, PATIENCE_S):
            self._require_workers(cluster)
        try:
            return cluster.result(future)
        except WorkersDied as error:
            return Reply(Failure(Fault.WORKERS_DIED, str(error)))

    def workers(self) -> int:
        """Workers of the cluster; 1 for this machine."""
        if self.local:
            return 1
        with self._cluster() as cluster:
            return cluster.workers()

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        connect: Callable[[str], contextlib.AbstractContextManager[Cluster]]
        # Each library is imported only where it is asked for: neither has to be installed.
        if self.kind == "dask":
            from collage_evo.fitness.measure.cluster_dask import connect
        else:
            from collage_evo.fitness.measure.cluster_ray import connect
        with connect(self.address) as cluster:
            self._require_workers(cluster)
            yield cluster

    def _require_workers(self, cluster: Cluster) -> None:
        if not cluster.workers():
            raise UnavailableError(f"the {cluster.name} at {self.address} has no workers: {cluster.how_to_join}")


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
