"""Lane threads: persistent threads that run the work of each lane and otherwise sleep.

A thread that waits sleeps on a lock, or on a queue's. On a virtual Xeon with two cores waking it takes 20 to 40
microseconds, and a handoff to one that does not wait yet below 1, also while a library runs in the other lane.
Spinning is slower: a thread that spins in Python takes the interpreter's lock from the one that should run, and a
thread that spins without it then sleeps on that lock.

Each thread runs on one core pieces compiled for one thread, so no library's pool is at work inside. The calling
thread, which may use all cores, loads all pieces: OpenVINO stays on the cores that it first finds.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from collage_evo.hardware.cores import own_cores

_here = threading.local()
"""``crews``: the calling thread's lane threads by number and width of lanes. Weak: callers hold the references."""


Jobs = SimpleQueue[Callable[[], object] | None]
"""Jobs of a lane's thread; None ends it. An interrupt leaves a job either queued or not."""


class LaneThreads:
    """Threads for all lanes but the first, which is the caller's; each on an exclusive core if there are enough.

    A lane of ``width`` cores leaves all but the first to threads that libraries start. An object serves one calling
    thread. Its threads end when its last reference goes.
    """

    def __init__(self, lanes: int, width: int = 1) -> None:
        self.pid = os.getpid()
        self.usable = True
        """False during a run, and after one that was abandoned."""
        cores = own_cores(lanes * width)
        self._jobs: tuple[Jobs, ...] = tuple(SimpleQueue() for _ in range(lanes - 1))
        weakref.finalize(self, _dismiss, self._jobs)  # also where not all threads can be started
        for lane, jobs in enumerate(self._jobs, 1):
            core = cores[lane * width] if cores else None
            # A daemon, as a thread that sleeps, or hangs in a library, must not keep the interpreter from ending.
            threading.Thread(target=_serve, args=(jobs, core), name=f"lane {lane}", daemon=True).start()

    def give(self, lane: int, job: Callable[[], object]) -> None:
        """Queue ``job``, which raises nothing, for the thread of ``lane``, numbered from 1."""
        self._jobs[lane - 1].put(job)


def lane_threads_here(lanes: int, width: int = 1) -> LaneThreads:
    """The calling thread's lane threads, created on first use, and again in a forked process, which has none."""
    crews: dict[tuple[int, int], weakref.ref[LaneThreads]] = _here.__dict__.setdefault("crews", {})
    known = crews.get((lanes, width))
    lane_threads = known() if known is not None else None
    if lane_threads is None or not lane_threads.usable or lane_threads.pid != os.getpid():
        lane_threads = LaneThreads(lanes, width)
        crews[lanes, width] = weakref.ref(lane_threads)
    return lane_threads


def closed_lock() -> threading.Lock:
    """A lock that is taken already: the next taker waits until :func:`open_lock`."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def open_lock(lock: threading.Lock) -> None:
    """Let the present or next taker of ``lock`` through, once, however often it is called meanwhile."""
    with contextlib.suppress(RuntimeError):  # it is open already
        lock.release()


def _serve(jobs: Jobs, core: int | None) -> None:
    if core is not None:
        with contextlib.suppress(OSError):  # the core was taken away meanwhile: any other core is slower, but correct
            os.sched_setaffinity(0, {core})
    while (job := jobs.get()) is not None:
        job()
        del job  # a job holds buffers and compiled pieces


def _dismiss(lanes: tuple[Jobs, ...]) -> None:
    for jobs in lanes:
        jobs.put(None)
