"""Where jobs run: takes an executor's kind and address and jobs, gives each one's answer as soon as it is there.

``loky`` is this machine, through joblib. ``dask`` and ``ray`` are clusters of machines of one kind that see the run
directory and the cache under the same paths; each worker measures on timing slots of its own machine. Clusters are
used through their own futures: joblib's Dask back end waits for ever on a call whose workers died (joblib 1.6), and
its Ray back end starts every worker anew for each call of ``Parallel`` and cannot give answers one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import joblib

from collage_evo.errors import ConfigError, UnavailableError
from collage_evo.fitness.cluster import Cluster, WorkersDied
from collage_evo.fitness.jobs import Answer, Job

PATIENCE_S = 10.0
"""How long no answer may come before it is asked whether the cluster still has workers."""
EXAMPLES = {"dask": "tcp://10.0.0.1:8786", "ray": "10.0.0.1:6379"}


@dataclass(frozen=True)
class Executor:
    """``kind`` is ``loky``, ``dask`` or ``ray``; ``address`` is the cluster's, such as ``tcp://10.0.0.1:8786``."""

    kind: str = "loky"
    address: str = ""

    def __post_init__(self) -> None:
        if not self.local and not self.address:
            raise ConfigError(f"fitness.address is missing: give the cluster's, such as {EXAMPLES[self.kind]}")

    @property
    def local(self) -> bool:
        """Whether all jobs run on this machine."""
        return self.kind == "loky"

    def run(
        self, call: Callable[[Job], Answer], jobs: Mapping[int, Job], slots: int
    ) -> Iterator[tuple[int, Answer]]:
        """What ``call`` answers to each job, with the job's number; on a cluster in any order.

        On this machine ``slots`` workers share the jobs; on a cluster all its workers do. A job that no worker
        survived is answered with that reason.

        Raises:
            BrokenExecutor: workers or the cluster went away with jobs that are not answered; ask again.
            UnavailableError: the cluster cannot be reached, or has no worker, or its workers cannot do the call.
        """
        if self.local:
            parallel = joblib.Parallel(
                n_jobs=slots, backend="loky", return_as="generator", pre_dispatch="2*n_jobs", batch_size=1
            )
            yield from zip(jobs, parallel(joblib.delayed(call)(job) for job in jobs.values()), strict=True)
            return
        with self._cluster() as cluster:
            waiting = {cluster.submit(call, job): index for index, job in jobs.items()}
            while waiting:
                done = cluster.done(list(waiting), PATIENCE_S)
                if not done:
                    self._require_workers(cluster)
                for future in done:
                    yield waiting.pop(future), _answer(cluster, future)

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
            from collage_evo.fitness.cluster_dask import connect
        else:
            from collage_evo.fitness.cluster_ray import connect
        with connect(self.address) as cluster:
            self._require_workers(cluster)
            yield cluster

    def _require_workers(self, cluster: Cluster) -> None:
        if not cluster.workers():
            raise UnavailableError(f"the {cluster.name} at {self.address} has no workers: {cluster.how_to_join}")


def _answer(cluster: Cluster, future: object) -> Answer:
    try:
        return cluster.result(future)
    except WorkersDied as error:
        return Answer(reason=f"worker died; {error}")


LOCAL = Executor()
