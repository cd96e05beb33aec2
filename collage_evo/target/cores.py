"""What backends with threads have in common: which cores are theirs alone, and how OpenMP's threads wait."""

from __future__ import annotations

import os
from collections.abc import Mapping


def own_cores(threads: int) -> tuple[int, ...]:
    """The cores that ``threads`` threads can have to themselves, one each; empty for a single thread.

    They have, when the process was given exactly as many: by ``taskset``, a container, or as a timing slot. A
    process that may run anywhere shares the machine with others, and the system had better place its threads.
    """
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    return cores if len(cores) == threads > 1 else ()


def gnu_openmp(threads: int) -> Mapping[str, str]:
    """GNU's OpenMP: its threads look for work 1,000 times and then sleep; by default they spin for milliseconds."""
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "1000"}
