"""Answer types of worker processes: one for each kind of job, or a failure, and which worker answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from collage_evo.accuracy.judge import Judgement
from collage_evo.graph.ir import NodeSet
from collage_evo.placement.failure import Failure


@dataclass(frozen=True)
class Compiled:
    """The region is in the cache; compiling it took ``seconds`` of the processor."""

    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Written:
    """The artifact is on disk."""


@dataclass(frozen=True)
class Measured:
    """Raw times of runs in ms, and the largest errors of the outputs against the reference.

    In a lower precision, and with a metric, ``relative_error`` is what the budget bounds: the error over all samples
    of the search, or the drop of the metric over them, which is 0.0 where it did not drop. ``contended``: other
    programs used the same cores in every repeat. ``rough``: the drop was measured on a part of the samples.
    """

    times_ms: tuple[float, ...]
    relative_error: float
    max_abs_error: float
    contended: bool = False
    rough: bool = False


@dataclass(frozen=True)
class Timed:
    """Raw times of runs in ms of an artifact that was checked when it was opened."""

    times_ms: tuple[float, ...]
    contended: bool = False


@dataclass(frozen=True)
class SampleBatches:
    """Raw times of runs in ms, by sample batch, in the order of the request."""

    batches: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Opened:
    """An artifact is ready: its largest errors, and the cost of loading it.

    ``load_ms``: checking its files, importing its libraries and preparing its pieces. ``peak_bytes``: the most memory
    that loading it and one run took (:class:`collage_evo.target.memory.PeakMemory`). ``notes``: ``Session.notes``.
    """

    relative_error: float
    max_abs_error: float
    load_ms: float
    peak_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profiled:
    """The median time of each region of an artifact, and what a session call adds to all of them, in ms."""

    region_ms: tuple[float, ...]
    call_ms: float | None = None


@dataclass(frozen=True)
class KernelTimes:
    """Times of a region's kernels within a run of the whole region, and raw times of runs without the profiler; in
    ms.

    ``kernels``: the nodes that each kernel computes, and its median; an empty node set where the library does not
    report which nodes a kernel computes.
    """

    kernels: tuple[tuple[NodeSet, float], ...]
    times_ms: tuple[float, ...]
    contended: bool = False


@dataclass(frozen=True)
class TunedKernels:
    """Keys of the kernels that a tuning job tried to make faster."""

    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Waits:
    """Progress message: the worker waits for other processes and does not hang."""


@dataclass(frozen=True)
class Inherits:
    """Progress message: the job uses the piece of this key, which another run built."""

    key: str


Times = Measured | Timed | SampleBatches | Profiled | KernelTimes
Answer = Compiled | Written | TunedKernels | Opened | Judgement | Times | Failure
Message = Answer | Waits | Inherits
"""A line of a worker process's output."""
A = TypeVar("A", covariant=True)


@dataclass(frozen=True)
class Asks(Generic[A]):
    """A job whose answer is an ``A`` if it succeeds."""


@dataclass(frozen=True)
class Reply(Generic[A]):
    """An answer and the worker that gave it.

    Attributes:
        worker: machine, cores and process.
        reference_ms: the worker's latency of the reference placement, where workers have to agree on one.
    """

    answer: A | Failure
    worker: str = ""
    reference_ms: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """Replaces an answer: the worker may not measure, because it disagrees on the reference or has no cores."""

    worker: str
    why: str
    reference_ms: float | None = None
