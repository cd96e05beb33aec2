"""What is asked of a library that carries calls to other machines: takes calls, gives their futures' results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from collage_evo.fitness.measure.answers import LeftOut, Reply
from collage_evo.fitness.measure.jobs import Job

Call = Callable[[Job], Reply[Any] | LeftOut]
"""What runs on the workers."""


class WorkersDied(Exception):
    """Every worker that tried a call died meanwhile; the message says how many tried."""


class Cluster(Protocol):
    """A connected cluster, asked by several threads. Futures are the library's own."""

    @property
    def name(self) -> str:
        """What answers at the address, such as ``Dask scheduler``."""
        ...

    @property
    def how_to_join(self) -> str:
        """What a person does on each machine so that it takes part."""
        ...

    def workers(self) -> int:
        """How many calls can run at once now."""
        ...

    def submit(self, call: Call, job: Job) -> Any:
        """The future of ``call(job)``, which the library tries again on another worker when one dies."""
        ...

    def done(self, future: Any, wait_s: float) -> bool:
        """Whether it has ended, after a wait of ``wait_s`` at most."""
        ...

    def result(self, future: Any) -> Reply[Any] | LeftOut:
        """What the call of a future that has ended gave.

        Raises:
            WorkersDied: every worker that tried it died.
            BrokenExecutor: the cluster went away with it.
            UnavailableError: a worker cannot do the call.
        """
        ...
