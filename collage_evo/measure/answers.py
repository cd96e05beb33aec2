"""What measuring processes answer: one type for each kind of job, or a failure; and who answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from collage_evo.accuracy.judge import Judgement
from collage_evo.graph.ir import NodeSet
from collage_evo.placement.failure import Failure


@dataclass(frozen=True)
class Compiled:
    """The region is in the cache, ``seconds`` of the processor later."""

    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Written:
    """The artifact is on disk."""


@dataclass(frozen=True)
class Measured:
    """Raw times of runs in ms, and the largest errors of the outputs against the reference.

    In a lower precision, and with a metric, ``relative_error`` is what the budget bounds: the error over all samples
    of the search, or the drop of the metric over them, which is 0.0 where it did not drop.
    ``disturbed``: somebody else was at work on the same cores, however often it was timed again.
    ``rough``: the drop is that over a part of the samples.
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
    """Raw times of runs in ms, by burst, in the order in which they were asked for."""

    batches: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Opened:
    """An artifact is ready: its largest errors, and what loading took.

    ``load_ms``: its files checked, its libraries imported, its pieces made ready. ``peak_bytes``: the most memory
    that loading it and one run took (:class:`collage_evo.target.memory.PeakMemory`). ``notes``: ``Session.notes``.
    """

    relative_error: float
    max_abs_error: float
    load_ms: float
    peak_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profiled:
    """The median time of each region of an artifact, and what a call of its session takes beyond all of them, ms."""

    region_ms: tuple[float, ...]
    call_ms: float | None = None


@dataclass(frozen=True)
class KernelTimes:
    """What the kernels of a region take while all of it runs, and raw times of runs without the profiler; in ms.

    ``kernels``: the nodes that each computes, and its median; of no nodes, where the library does not
    tell whose work it does.
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
    """In place of an answer while it waits for others: it does not hang."""


@dataclass(frozen=True)
class Inherits:
    """Before an answer: it takes the piece of this key, which another run built."""

    key: str


Times = Measured | Timed | SampleBatches | Profiled | KernelTimes
Answer = Compiled | Written | TunedKernels | Opened | Judgement | Times | Failure
Message = Answer | Waits | Inherits
"""What a measuring process says, a line for each."""
A = TypeVar("A", covariant=True)


@dataclass(frozen=True)
class Asks(Generic[A]):
    """A job whose answer is an ``A`` where it could be done."""


@dataclass(frozen=True)
class Reply(Generic[A]):
    """An answer and who gave it.

    Attributes:
        worker: machine, cores and process.
        reference_ms: what the reference placement takes that worker, where workers have to agree on one.
    """

    answer: A | Failure
    worker: str = ""
    reference_ms: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """In place of an answer: the worker may not measure. It disagrees on the reference, or has no cores."""

    worker: str
    why: str
    reference_ms: float | None = None
