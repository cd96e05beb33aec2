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

from collage_evo.backends.base import DynamicExecutable, Tensors
from collage_evo.backends.variants import Variant
from collage_evo.hardware.target import Target

MOST_RUNS, LEAST_RUNS = 25, 7
FEWEST_RUNS, LEAST_S = 2, 1.5
"""Runs that suffice where they take so many seconds. Chosen: the kernels of a long piece are long too."""
_NAMES = re.compile(r"(?<![A-Za-z0-9])(?:n\d+_[A-Za-z]+|[tor]\d+(?:_\d+)?(?![A-Za-z0-9]))")


@dataclass(frozen=True)
class KernelTime:
    """A kernel's time in ms under the library's name for it, which holds names of the piece's nodes or tensors."""

    label: str
    ms: float


@dataclass(frozen=True)
class Kernel:
    """One call of a kernel in one run of a piece.

    Attributes:
        label: the library's name for it, as that of a :class:`KernelTime`.
        kind: the library's kind of operator.
        us: how long it took, in microseconds.
        precision: in NumPy's words, but ``int8`` for unsigned ones too; empty if the library does not tell.
        start_us: microseconds from the beginning of the library's run; None if the library only tells the order.
    """

    label: str
    kind: str
    us: float
    precision: str = ""
    start_us: float | None = None


KernelsOfRuns = Callable[[int], Sequence[Sequence[Kernel]]]
"""The kernels of each of the last so many runs, in the order of the runs. Called once: it may end the profile."""


@runtime_checkable
class HasProfiler(Protocol):
    """A backend whose library has a profiler."""

    def profiles(self, variant: Variant) -> bool:
        """Whether it profiles pieces of ``variant``."""

    def profile(
        self, workdir: Path, target: Target, variant: Variant, inputs: Sequence[np.ndarray], seconds: float
    ) -> Sequence[KernelTime]:
        """Run the piece in ``workdir`` on ``inputs`` for some ``seconds`` with the library's profiler on."""


@runtime_checkable
class HasTimeline(HasProfiler, Protocol):
    """A backend whose profiler tells the kernels of a run in their order, so that a session can show them."""

    def load_profiled(
        self, workdir: Path, target: Target, variant: Variant, inputs: Tensors = ()
    ) -> tuple[DynamicExecutable, KernelsOfRuns]:
        """The piece in ``workdir`` of a variant that it profiles, loaded as by ``load``, but with the library's
        profiler on; and what that tells."""


def names_in(label: str) -> tuple[str, ...]:
    """Canonical names of nodes and tensors (``graph/convert/extract.py``) in the library's name of a kernel."""
    return tuple(_NAMES.findall(label))


def runs_within(seconds: float, run: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> int:
    """Call ``run`` as often as ``seconds`` allow, ``LEAST_RUNS`` to ``MOST_RUNS`` times, fewer once they took
    ``LEAST_S``; returns the number of calls.

    Between two runs the processor stays busy, for up to as long as a run and each time for another while. Where other
    processes compete for it, the system would otherwise take it away at the same kernel of every run.
    """
    first, runs, rng = clock(), 0, random.Random(0)
    while True:
        begin = clock()
        run()
        runs, spent_s = runs + 1, clock() - first
        least = LEAST_RUNS if spent_s < LEAST_S else FEWEST_RUNS
        if runs >= MOST_RUNS or (runs >= least and spent_s >= seconds):
            return runs
        idle = clock() + rng.random() * (clock() - begin)
        while clock() < idle:
            pass


def kernel_times(times_ms: Mapping[str, Sequence[float]], runs: int) -> tuple[KernelTime, ...]:
    """Each kernel's ms in a run, from all its times in ``runs`` runs, which may have called it several times.

    The lower quartile leaves out what other work on the same cores adds.
    """
    return tuple(
        KernelTime(label, float(np.percentile(times, 25)) * len(times) / runs) for label, times in times_ms.items()
    )
