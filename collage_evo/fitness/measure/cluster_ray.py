"""Ray as a cluster: takes its address, gives the calls that ``executor`` makes on it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

from collage_evo.errors import ConfigError, UnavailableError, one_line
from collage_evo.fitness.measure.answers import LeftOut, Reply
from collage_evo.fitness.measure.cluster import Call, WorkersDied
from collage_evo.fitness.measure.jobs import Job

try:
    import ray
    from ray import exceptions
except ImportError:
    raise UnavailableError(
        "fitness.executor is ray, which is not installed: pip install 'collage-evo[ray]'"
    ) from None

CONNECT_S = 10.0
RETRIES = 3
"""How often a call is tried on another worker, as Dask does by default."""
DIED = (exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.OutOfMemoryError)


@dataclass(frozen=True)
class RayCluster:
    """See :class:`~collage_evo.fitness.measure.cluster.Cluster`. A worker is a CPU that a machine offers to Ray."""

    task: Any
    address: str
    name = "Ray cluster"

    @property
    def how_to_join(self) -> str:
        return f"start 'ray start --address {self.address} --num-cpus 1' on each machine"

    def workers(self) -> int:
        _require_answer(self.address)
        return int(ray.cluster_resources().get("CPU", 0))

    def submit(self, call: Call, job: Job) -> Any:
        return self.task.remote(call, job)

    def done(self, future: Any, wait_s: float) -> bool:
        _require_answer(self.address)
        return bool(ray.wait([future], timeout=wait_s)[0])

    def result(self, future: Any) -> Reply[Any] | LeftOut:
        try:
            reply: Reply[Any] | LeftOut = ray.get(future)
        except DIED:
            raise WorkersDied(f"workers that tried: {RETRIES + 1}") from None
        except exceptions.RayTaskError as error:
            why = f"{type(error.cause).__name__}: {one_line(error.cause)}"
            raise UnavailableError(f"a Ray worker cannot measure: {why}") from error
        except (exceptions.RayError, ConnectionError) as error:
            raise BrokenExecutor(f"the connection to the Ray cluster was lost: {one_line(error)}") from None
        return reply


@contextlib.contextmanager
def connect(address: str) -> Iterator[RayCluster]:
    """The cluster at ``address``. The connection stays open: Ray ends a program's workers with it.

    Raises:
        UnavailableError: no cluster answers there.
    """
    _require_answer(address)
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise UnavailableError(
            f"the Ray cluster at {address} cannot be joined ({one_line(error)}): this machine has to be one of its "
            "nodes, with the same Ray, Python and RAY_AUTH_MODE"
        ) from None
    yield RayCluster(ray.remote(num_cpus=1, max_retries=RETRIES)(_apply), address)


def _require_answer(address: str) -> None:
    # Ray's own calls hang when its head is gone, and after a minute it ends the program that made them.
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"fitness.address is {address}: give host and port of Ray's head, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        raise UnavailableError(
            f"no Ray cluster answers at {address} ({one_line(error)}): start one with 'ray start --head', and "
            f"'ray start --address {address} --num-cpus 1' on each machine; a run that was under way can then go on "
            "with: resume RUN_DIR"
        ) from None


def _apply(call: Call, job: Job) -> Reply[Any] | LeftOut:
    return call(job)
