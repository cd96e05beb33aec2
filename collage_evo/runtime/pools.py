"""One policy for all thread pools: how long their threads wait before they sleep, and on which cores they run.

Several libraries' pools share the target's cores. Three things decide whether they get on:

- Waiting. A pool that spins on after its region takes a core from the next one; measured here, two libraries in
  turn took up to 2.5 times their time apart. Each backend's ``environment`` makes its threads sleep within some 10
  microseconds (``runtime/pools.py`` applies it before the library is loaded).
- Place. A thread that sleeps is woken often, and after a pause Linux likes to wake it on the caller's own core,
  where the two take turns for many runs. Where the process has exactly as many cores as the target has threads,
  pool threads are pinned, each to a core of its own, and a run starts on the core that no worker has. A process
  that may run anywhere is left to the system.
- Distance. A hypervisor may move a virtual machine's cores between chips from one second to the next. One thread
  does not notice; two then wait for each other several times as long. ``target/core_distance.py`` times a cache
  line's round trip between the cores before and after each measurement on several cores, and what was taken while
  they were far apart is taken again, unless waiting for better times would take more than a quarter of the whole;
  it is then marked as disturbed. Races that decide are not filtered: both sides meet whatever comes.

Lanes (``backends/lanes/lane_threads.py``) are threads of another kind: each computes on one core what was compiled
for one thread, so no pool is at work inside of it. All pieces are loaded by the caller, who may use all cores:
OpenVINO keeps to the cores that it first finds. A crew of lanes belongs to a calling thread, and regions in turn
share it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend
from collage_evo.target.cores import own_cores

_TASKS = Path("/proc/self/task")
_current_core: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_getcpu", lambda: -1)


def settle_pools(backends: Iterable[str], target: Target) -> None:
    """Set the environment of ``backends`` for ``target``; what the person has set already stays.

    One single backend has nobody to wait for and keeps its library's own settings. A library reads its settings
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
    return (partial(_move_to_first, cores), *calls) if cores else calls


def _move_to_first(cores: tuple[int, ...]) -> None:
    """Move the calling thread to the first of ``cores``, which it may leave for the others."""
    if _current_core() != cores[0]:  # asking takes a tenth of what moving does
        os.sched_setaffinity(0, cores[:1])
        # Free again before the libraries start: OpenVINO takes the caller's cores for all that it may use.
        os.sched_setaffinity(0, cores)


def _thread_ids() -> set[int]:
    return {int(path.name) for path in _TASKS.iterdir()}
