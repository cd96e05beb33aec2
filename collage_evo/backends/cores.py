"""Which cores belong to this process alone: what decides whether worker threads are pinned."""

from __future__ import annotations

import os


def own_cores(threads: int) -> tuple[int, ...]:
    """The cores that ``threads`` threads can have to themselves, one each; empty for a single thread.

    They have, when the process was given exactly as many: by ``taskset``, a container, or as a timing slot. A
    process that may run anywhere shares the machine with others, and the system had better place its threads.
    """
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    return cores if len(cores) == threads > 1 else ()
