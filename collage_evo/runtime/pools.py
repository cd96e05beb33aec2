"""One policy for all thread pools: how long their threads wait before they sleep, and on which cores they run."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend
from collage_evo.target.cores import own_cores

_TASKS = Path("/proc/self/task")


def settle_pools(backends: Iterable[str], target: Target) -> None:
    """Set the environment of ``backends`` for ``target``; what the person has set already stays.

    One backend alone has nobody to wait for and keeps its library's own settings. A library reads its settings
    when it is first loaded: one that the program loaded before keeps those.
    """
    names = sorted(set(backends))
    for name in names if len(names) > 1 else ():
        for variable, value in get_backend(name).environment(target).items():
            os.environ.setdefault(variable, value)


@contextlib.contextmanager
def workers_apart(threads: int) -> Iterator[None]:
    """Keep the pool threads that start in this context off the caller's core, each on one of its own.

    Threads that sleep between regions are woken often, and after a pause the system likes to wake them on the
    core of the caller: both then share it for many runs, and each takes twice as long or more. Only where the
    process has its cores to itself (:func:`own_cores`); the caller's place is :func:`from_first_core`. Threads that
    keep off the caller's core already, as those of a lane do, stay where they are.
    """
    cores = own_cores(threads)
    if not cores or not _TASKS.exists():
        yield
        return
    before = _thread_ids()
    yield
    python_threads = {thread.native_id for thread in threading.enumerate()}
    # A pool starts its threads in a row: dealt out in turn, no two of one pool meet.
    for position, thread in enumerate(sorted(_thread_ids() - before - python_threads)):
        with contextlib.suppress(ProcessLookupError):
            if cores[0] in os.sched_getaffinity(thread):
                os.sched_setaffinity(thread, {cores[1 + position % (threads - 1)]})


def from_first_core(
    calls: tuple[Callable[[], None], ...], threads: int
) -> tuple[Callable[[], object], ...]:
    """``calls``, but the calling thread first moves to the core that no worker has. It is free to move again."""
    cores = own_cores(threads)
    if not cores:
        return calls
    # Free again before the libraries start: OpenVINO takes the caller's cores for all that it may use.
    return (partial(os.sched_setaffinity, 0, cores[:1]), partial(os.sched_setaffinity, 0, cores), *calls)


def _thread_ids() -> set[int]:
    return {int(path.name) for path in _TASKS.iterdir()}
