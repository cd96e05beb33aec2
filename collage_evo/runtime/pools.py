"""Policy for all thread pools: how long their threads wait before they sleep, and on which cores they run.

Several libraries' pools share the target's cores. Three properties decide whether they disturb each other:

- Waiting. A pool that spins after its region takes a core from the next one; measured here, two libraries in
  turn took up to 2.5 times their time apart. Each backend's ``environment`` makes its threads sleep within some 10
  microseconds (``runtime/pools.py`` applies it before the library is loaded).
- Place. A sleeping thread wakes often, and after a pause Linux tends to wake it on the caller's own core, where the
  two take turns for many runs. Where the process has exactly as many cores as the target has threads, pool threads
  are pinned, each to its own core, and a run starts on the core that no worker has. The system places the threads of
  a process that may run anywhere.
- Distance. A hypervisor may move a virtual machine's cores between chips from one second to the next. That does not
  affect a single thread; two then wait for each other several times as long. ``hardware/core_distance.py`` times a
  cache line's round trip between the cores before and after each measurement on several cores, and a measurement on
  distant cores is repeated, unless waiting for better times would take more than a quarter of the whole; it is then
  marked as contended. Races that decide are not filtered: both sides run under the same conditions.
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
from collage_evo.hardware.cores import own_cores

_TASKS = Path("/proc/self/task")
_current_core: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_getcpu", lambda: -1)


def settle_pools(backends: Iterable[str], target: Target) -> None:
    """Set the environment of ``backends`` for ``target``, without changing variables that the user has set.

    A single backend shares no cores and retains its library's own settings. A library reads its settings when it is
    first loaded: one that the program loaded before retains those.
    """
    names = sorted(set(backends))
    for name in names if len(names) > 1 else ():
        for variable, value in get_backend(name).environment(target).items():
            os.environ.setdefault(variable, value)


@contextlib.contextmanager
def workers_apart(threads: int) -> Iterator[None]:
    """Pin the pool threads that start in this context to separate cores other than the caller's.

    Threads that sleep between regions wake often, and after a pause the system tends to wake them on the core of the
    caller: both then share it for many runs, and each takes twice as long or more. Only where the process has
    exclusive cores (:func:`own_cores`); :func:`from_first_core` places the caller. Threads that avoid the caller's
    core already, as those that a backend places (``KeepsToCores``), do not move.
    """
    cores = own_cores(threads)
    if not cores or not _TASKS.exists():
        yield
        return
    before = _thread_ids()
    yield
    python_threads = {thread.native_id for thread in threading.enumerate()}
    # A pool starts its threads in a row: assigned in turn, no two of one pool share a core.
    for position, thread in enumerate(sorted(_thread_ids() - before - python_threads)):
        with contextlib.suppress(ProcessLookupError):
            if cores[0] in os.sched_getaffinity(thread):
                os.sched_setaffinity(thread, {cores[1 + position % (threads - 1)]})


def from_first_core(
    calls: tuple[Callable[[], None], ...], threads: int
) -> tuple[Callable[[], object], ...]:
    """``calls``, preceded by a move of the calling thread to the core that no worker has. It is not pinned there."""
    cores = own_cores(threads)
    return (partial(_move_to_first, cores), *calls) if cores else calls


def _move_to_first(cores: tuple[int, ...]) -> None:
    """Move the calling thread to the first of ``cores``; it may move to the others afterwards."""
    if _current_core() != cores[0]:  # the check takes a tenth of the time of a move
        os.sched_setaffinity(0, cores[:1])
        # Unpinned before the libraries start: OpenVINO regards the caller's cores as all that it may use.
        os.sched_setaffinity(0, cores)


def _thread_ids() -> set[int]:
    return {int(path.name) for path in _TASKS.iterdir()}
