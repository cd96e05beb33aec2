"""Core and thread settings for backends with threads: exclusive cores, and how OpenMP's threads wait."""

from __future__ import annotations

import os
from collections.abc import Mapping


def own_cores(threads: int) -> tuple[int, ...]:
    """The exclusive cores of ``threads`` threads, one each; empty for a single thread.

    There are some when the process has exactly as many cores: by ``taskset``, a container, or a timing slot. A
    process that may run anywhere shares the machine with others, and the system should place its threads.
    """
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    return cores if len(cores) == threads > 1 else ()


def gnu_openmp(threads: int) -> Mapping[str, str]:
    """Settings of GNU's OpenMP: threads check for work 1,000 times and then sleep; by default they spin for ms."""
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "1000"}
