"""Dask as a cluster: takes a scheduler's address, gives the calls that ``executor`` makes on it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from collage_evo.errors import UnavailableError, one_line
from collage_evo.fitness.measure.answers import LeftOut, Reply
from collage_evo.fitness.measure.cluster import Call, WorkersDied
from collage_evo.fitness.measure.jobs import Job

try:
    import distributed
except ImportError:
    raise UnavailableError(
        "fitness.executor is dask, which is not installed: pip install 'collage-evo[cluster]'"
    ) from None

CONNECT_S = "10s"


@dataclass(frozen=True)
class DaskCluster:
    """See :class:`~collage_evo.fitness.measure.cluster.Cluster`."""

    client: Any
    address: str
    name = "Dask scheduler"

    @property
    def how_to_join(self) -> str:
        return f"start 'dask worker {self.address} --nthreads 1' on each machine"

    def workers(self) -> int:
        try:
            return len(self.client.scheduler_info(n_workers=-1)["workers"])
        except (OSError, ValueError) as error:
            raise BrokenExecutor(f"the Dask scheduler does not answer: {one_line(error)}") from None

    def submit(self, call: Call, job: Job) -> Any:
        return self.client.submit(call, job, pure=False)

    def done(self, future: Any, wait_s: float) -> bool:
        # Which client waits is known by thread. Of a call that was given up, result() tells.
        with self.client.as_current(), contextlib.suppress(TimeoutError, distributed.CancelledError):
            distributed.wait(future, timeout=wait_s)
        ended: bool = future.done()
        return ended

    def result(self, future: Any) -> Reply[Any] | LeftOut:
        if future.status == "finished":
            reply: Reply[Any] | LeftOut = future.result()
            return reply
        if future.status != "error":
            raise BrokenExecutor("the connection to the Dask scheduler was lost")
        error = future.exception()
        if isinstance(error, distributed.KilledWorker):
            raise WorkersDied(f"workers that tried: {error.allowed_failures + 1}")
        raise UnavailableError(f"a Dask worker cannot measure: {type(error).__name__}: {one_line(error)}") from error


@contextlib.contextmanager
def connect(address: str) -> Iterator[DaskCluster]:
    """The cluster whose scheduler is at ``address``.

    Raises:
        UnavailableError: no scheduler answers there.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what it logs when workers go is told elsewhere
    try:
        client: Any = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:  # of TLS without certificates it makes a TypeError
        raise UnavailableError(
            f"no Dask scheduler answers at {address} ({one_line(error)}): start one with 'dask scheduler', and "
            f"'dask worker {address} --nthreads 1' on each machine; a run that was under way can then go on with: "
            "resume RUN_DIR"
        ) from None
    with client:
        yield DaskCluster(client, address)
