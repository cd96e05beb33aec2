"""Profiling, an optional capability: the time of each kernel of a backend while a whole piece runs."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from collage_evo.backends.variants import Variant
from collage_evo.runtime.timing import LONG_S
from collage_evo.target.target import Target

MOST_RUNS, LEAST_RUNS = 25, 7
LONG_RUNS = 2
"""Runs that profile a piece of :data:`~collage_evo.runtime.timing.LONG_S`. Chosen: its kernels are long too."""
_NAMES = re.compile(r"(?<![A-Za-z0-9])(?:n\d+_[A-Za-z]+|[tor]\d+(?:_\d+)?(?![A-Za-z0-9]))")


@dataclass(frozen=True)
class KernelTime:
    """A kernel's time in ms under the library's name for it, which holds names of the piece's nodes or tensors."""

    label: str
    ms: float


@runtime_checkable
class HasProfiler(Protocol):
    """A backend whose library has a profiler."""

    def profiles(self, variant: Variant) -> bool:
        """Whether it profiles pieces of ``variant``."""
        ...

    def profile(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[np.ndarray], seconds: float
    ) -> Sequence[KernelTime]:
        """Run the piece in ``workdir`` on ``inputs`` for some ``seconds`` with the library's profiler on."""
        ...


def names_in(label: str) -> tuple[str, ...]:
    """Canonical names of nodes and tensors (``graph/convert/extract.py``) in the library's name of a kernel."""
    return tuple(_NAMES.findall(label))


def runs_within(seconds: float, run: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> int:
    """Call ``run`` as often as ``seconds`` allow, ``LEAST_RUNS`` to ``MOST_RUNS`` times, if it takes long
    ``LONG_RUNS`` times; returns the number of calls.

    Between two short runs the processor stays busy, for up to as long as a run and each time for another while.
    Where other processes compete for it, the system would otherwise take it away at the same kernel of every run.
    """
    end, runs, rng = clock() + seconds, 0, random.Random(0)
    while runs < LEAST_RUNS or (runs < MOST_RUNS and clock() < end):
        begin = clock()
        run()
        runs += 1
        if clock() - begin >= LONG_S:
            if runs >= LONG_RUNS:
                break
            continue
        idle = clock() + rng.random() * (clock() - begin)
        while clock() < idle:
            pass
    return runs


def kernel_times(times_ms: Mapping[str, Sequence[float]], runs: int) -> tuple[KernelTime, ...]:
    """Each kernel's ms in a run, from all its times in ``runs`` runs, which may have called it several times.

    The lower quartile leaves out what other work on the same cores adds.
    """
    return tuple(
        KernelTime(label, float(np.percentile(times, 25)) * len(times) / runs) for label, times in times_ms.items()
    )
