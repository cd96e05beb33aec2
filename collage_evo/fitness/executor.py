"""Where jobs run: takes an executor's name and address, gives joblib's ``Parallel`` on it.

``loky`` is this machine. ``dask`` is a cluster of machines of one kind that see the run directory and the cache
under the same paths; each worker measures on timing slots of its own machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import joblib

from collage_evo.errors import ConfigError, UnavailableError

CONNECT_S = "15s"


@dataclass(frozen=True)
class Executor:
    """``kind`` is ``loky`` or ``dask``; ``address`` is the scheduler's, such as ``tcp://10.0.0.1:8786``."""

    kind: str = "loky"
    address: str = ""

    def __post_init__(self) -> None:
        if self.kind == "dask" and not self.address:
            raise ConfigError("fitness.address is missing: give the Dask scheduler's, such as tcp://10.0.0.1:8786")

    @property
    def local(self) -> bool:
        """Whether all jobs run on this machine."""
        return self.kind == "loky"

    @contextlib.contextmanager
    def parallel(self, slots: int) -> Iterator[joblib.Parallel]:
        """Jobs one by one on ``slots`` local workers, or on as many as the cluster has.

        Raises:
            UnavailableError: the cluster cannot be reached, or has no worker.
        """
        options = {"return_as": "generator", "pre_dispatch": "2*n_jobs", "batch_size": 1}
        if self.local:
            yield joblib.Parallel(n_jobs=slots, backend="loky", **options)
            return
        with self._client() as client, joblib.parallel_config("dask", client=client):
            yield joblib.Parallel(n_jobs=-1, **options)

    def workers(self) -> int:
        """Workers of the cluster; 1 for this machine."""
        if self.local:
            return 1
        with self._client() as client:
            return len(client.scheduler_info()["workers"])

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            import distributed
        except ImportError:
            raise UnavailableError(
                "fitness.executor is dask, which is not installed: pip install 'collage-evo[cluster]'"
            ) from None
        try:
            client: Any = distributed.Client(self.address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UnavailableError(
                f"no Dask scheduler answers at {self.address} ({error}): start one with 'dask scheduler', and "
                f"'dask worker {self.address} --nthreads 1' on each machine"
            ) from None
        with client:
            if not client.scheduler_info()["workers"]:
                raise UnavailableError(
                    f"the Dask scheduler at {self.address} has no workers: start 'dask worker {self.address} "
                    "--nthreads 1' on each machine"
                )
            yield client


LOCAL = Executor()
