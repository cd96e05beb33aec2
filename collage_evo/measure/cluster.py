"""Client of a Dask cluster: submits calls to its workers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from collage_evo.errors import UnavailableError, one_line
from collage_evo.extras import install
from collage_evo.measure.jobs import Job, LeftOut, Reply
from collage_evo.placement.failure import Failure, Fault

try:
    import distributed
except ImportError:
    raise UnavailableError(f"fitness.executor is dask, which is not installed: {install('cluster')}") from None

CONNECT_S = "10s"
Call = Callable[[Job], Reply[Any] | LeftOut]
"""The function that the workers run."""


@dataclass(frozen=True)
class Cluster:
    """A connected cluster; several threads may call it."""

    client: Any
    address: str

    def workers(self) -> int:
        """How many calls can run at once now.

        Raises:
            BrokenExecutor: the scheduler is gone.
        """
        try:
            return len(self.client.scheduler_info(n_workers=-1)["workers"])
        except (OSError, ValueError) as error:
            raise BrokenExecutor(f"the Dask scheduler does not answer: {one_line(error)}") from None

    def require_workers(self) -> None:
        """Raise an UnavailableError if there are none."""
        if not self.workers():
            raise UnavailableError(
                f"the Dask scheduler at {self.address} has no workers: start "
                f"'dask worker {self.address} --nthreads 1' on each machine"
            )

    def submit(self, call: Call, job: Job) -> Any:
        """The future of ``call(job)``, which Dask tries again on another worker when one dies."""
        return self.client.submit(call, job, pure=False)

    def done(self, future: Any, wait_s: float) -> bool:
        """Whether the call has ended, after a wait of at most ``wait_s``."""
        # Dask knows the waiting client by thread. result() reports a call that was given up.
        with self.client.as_current(), contextlib.suppress(TimeoutError, distributed.CancelledError):
            distributed.wait(future, timeout=wait_s)
        ended: bool = future.done()
        return ended

    def result(self, future: Any) -> Reply[Any] | LeftOut:
        """The result of a future that has ended; a failure if every worker that tried it died.

        Raises:
            BrokenExecutor: the cluster went away with it.
            UnavailableError: a worker cannot do the call.
        """
        if future.status == "finished":
            reply: Reply[Any] | LeftOut = future.result()
            return reply
        if future.status != "error":
            raise BrokenExecutor("the connection to the Dask scheduler was lost")
        error = future.exception()
        if isinstance(error, distributed.KilledWorker):
            return Reply(Failure(Fault.WORKERS_DIED, f"workers that tried: {error.allowed_failures + 1}"))
        raise UnavailableError(f"a Dask worker cannot measure: {type(error).__name__}: {one_line(error)}") from error


@contextlib.contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """The cluster whose scheduler is at ``address``.

    Raises:
        UnavailableError: no scheduler answers there.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # the run reports workers that go in its own words
    try:
        client: Any = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:  # TLS without certificates raises a TypeError
        raise UnavailableError(
            f"no Dask scheduler answers at {address} ({one_line(error)}): start one with 'dask scheduler', and "
            f"'dask worker {address} --nthreads 1' on each machine; a run that was under way can then go on with: "
            "resume RUN_DIR"
        ) from None
    with client:
        yield Cluster(client, address)
