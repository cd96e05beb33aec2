"""Jobs of worker processes and their answers: records that travel as lines of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from collage_evo.accuracy.judge import Judgement, Over
from collage_evo.accuracy.limits import Limits
from collage_evo.backends.registry import Origin
from collage_evo.codec import from_plain
from collage_evo.errors import InputError
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Observed
from collage_evo.graph.ir.graph import NodeSet
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Part, Placement, Region
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.pruning import SLOW_BASELINE, SLOW_MATCH, SLOW_PLACEMENT
from collage_evo.runtime.timing import TimingSettings

REGIONS = "regions"
"""Key of an artifact's information that lists its regions, from which its pieces were compiled."""


class WorkFiles:
    """Files below ``directory``; not every run has all of them."""

    def __init__(self, directory: Path) -> None:
        self.original = directory / "original.onnx"
        """The person's own model."""
        self.dynamic = directory / "dynamic.onnx"
        """The same before its inputs' shapes were fixed; not there where it was static."""
        self.normalised = directory / "normalised.onnx"
        """The model that is searched."""
        self.reference = directory / "reference.npz"
        """Values of reference inputs and outputs, as ``fitness/references.py`` keeps them."""
        self.edges = directory / "edges.npz"
        """The same for inputs at the edge of what the model may be given (``graph/check/edges.py``)."""
        self.nonfinite = directory / "nonfinite.npz"
        """The same with NaN and infinity in the inputs; there where those must not be lost."""
        self.recorded = directory / "recorded.npz"
        """Values that tensors of the normalised model have in the first reference run."""
        self.ranges = directory / "ranges.json"
        """Calibrated ranges of the normalised model's tensors; not there where nothing is quantised."""
        self.search = directory / "search.npz"
        """The samples of the search and what they ought to give, as ``accuracy/samples.py`` keeps them."""
        self.records = directory / "records"
        """What backends keep of their tuning, a folder for each."""


@dataclass(frozen=True)
class Setting:
    """Settings that all jobs of one run share. Paths are text, so that the value travels."""

    work: str
    """The directory of :attr:`files`."""
    cache: str
    cache_bytes: int
    target: Target
    """On any cores: each measuring process has its own."""
    limits: Limits
    """Tolerances of results."""
    registered: tuple[Origin, ...] = ()
    """Backends that have no entry point."""
    run: str = ""
    """The run, for others that wait for it: process id and run directory."""
    metric: str = ""
    """Name of a metric or ``file.py:function``, whose drop is the error; empty for the relative error (2-norm)."""
    metric_sha256: str = ""
    """Of the function's file when the run began."""
    over: Over = "all"
    """The error that the budget bounds: that of all samples together, or that of the worst."""
    keeps_nonfinite: bool = False
    """Whether results must preserve NaN and infinity in inputs."""
    policy: Policy = DEFAULT_POLICY
    """Thresholds at which a placement, or a single library, is behind, and how long both are timed."""
    sessions: int = 1
    """Sessions of a whole model that run at once while it is timed, each on the target's threads. With several, the
    latency is the machine's time for a run: :class:`collage_evo.runtime.crowd.Tally`. Parts of a model are timed
    standalone."""
    in_turns: bool = False
    """Whether a placement is never compiled while another is measured."""
    reference_bytes: int = 0
    """Memory that a loaded reference run takes: processes that time placements are not replaced for it."""
    python: str = ""
    """Interpreter of the measuring processes, whose environment may have other versions of libraries; empty for that
    of the run."""

    @property
    def files(self) -> WorkFiles:
        """Files that all jobs read."""
        return WorkFiles(Path(self.work))


@dataclass(frozen=True)
class Begin:
    """The first line that a worker process gets: the settings of all its jobs, and the cores that it is pinned to."""

    setting: Setting
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Compiled:
    """The region is in the cache; compiling it took ``seconds`` of the processor."""

    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Written:
    """The artifact is on disk."""


@dataclass(frozen=True)
class Measured(Observed):
    """Raw times of runs in ms, and the largest errors of the outputs against the reference.

    In a lower precision, and with a metric, ``relative_error`` is what the budget bounds: the error over all samples
    of the search, or the drop of the metric over them, which is 0.0 where it did not drop.
    """

    times_ms: tuple[float, ...]
    relative_error: float
    max_abs_error: float


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
    that loading it and one run took (:class:`collage_evo.hardware.memory.PeakMemory`). ``notes``: ``Session.notes``.
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
class Traced:
    """Mean time of each kernel in one run of an artifact, where its library tells it: the number of its region, the
    names of its nodes in the user's file, and ms."""

    kernels: tuple[tuple[int, tuple[str, ...], float], ...]


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


Times = Measured | Timed | SampleBatches | Profiled | Traced | KernelTimes
Answer = Compiled | Written | TunedKernels | Opened | Judgement | Times | Failure
Message = Answer | Waits | Inherits
"""A line of a worker process's output."""
A = TypeVar("A", covariant=True)


@dataclass(frozen=True)
class Asks(Generic[A]):
    """A job whose answer is an ``A`` if it succeeds."""

    rule: ClassVar[str] = ""
    """Name of the pruning rule that ends a process which is slower than the job's ``give_up_ms`` in its first run."""


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


@dataclass(frozen=True)
class BuildJob(Asks[Compiled]):
    """Compile a region into the cache."""

    region: Region


@dataclass(frozen=True)
class CostJob(Asks[Measured]):
    """Time one match at its cost inside the model: weights cold, inputs warm."""

    rule = SLOW_MATCH.name
    region: Region
    timing: TimingSettings
    give_up_ms: float
    flush: bool


@dataclass(frozen=True)
class KernelsJob(Asks[KernelTimes]):
    """Profile the kernels of a region that runs as a whole with its library's profiler, and time that region."""

    region: Region
    timing: TimingSettings
    seconds: float
    """Timing settings of the runs with the profiler."""


@dataclass(frozen=True)
class CopyJob(Asks[Measured]):
    """Time ``runs`` copies of ``nbytes`` to the target's accelerator, or back to the host."""

    nbytes: int
    there: bool
    runs: int


@dataclass(frozen=True)
class PlacementJob(Asks[Measured]):
    """Check a placement against the reference, then time it end to end: against a reference run, if there is one.

    It is judged on few samples, and on all of them only where it may be the answer, because it did not lose the race,
    or ``on_all_samples``: errors on few do not compare with others on all.
    """

    rule = SLOW_PLACEMENT.name
    regions: tuple[Region, ...]
    """In the order in which they run."""
    timing: TimingSettings
    give_up_ms: float
    best_ms: float = math.inf
    """Latency of the fastest placement so far that may be the answer: a placement that is certainly slower is timed
    no further."""
    reference_run: str = ""
    """Artifact of the reference run; the placement's latency is a multiple of its latency."""
    reference_run_ms: float = math.nan
    """Latency of the reference run."""
    on_all_samples: bool = False


@dataclass(frozen=True)
class TuneJob(Asks[TunedKernels]):
    """Tune the kernels of a match with its backend."""

    nodes: NodeSet
    backend: str
    records: str
    """Directory of the tuning records."""
    trials: int


@dataclass(frozen=True)
class WholeJob(Asks[Measured]):
    """Compile the user's model as one piece, write it as an artifact, check and time it."""

    rule = SLOW_BASELINE.name
    backend: str
    variant: str
    artifact: str
    timing: TimingSettings
    give_up_ms: float = math.inf


@dataclass(frozen=True)
class FallbackJob(Asks[Measured]):
    """Compile the user's model with open shapes, write it as an artifact, check and time it.

    A fallback gets shapes that it has not run before, for which some libraries compile anew: the job times the first
    run of a newly loaded session.
    """

    backend: str
    variant: str
    artifact: str
    loads: int = 3
    """Sessions whose first run is timed; fewer if that takes longer than ``seconds``."""
    seconds: float = 5.0


@dataclass(frozen=True)
class ArtifactJob(Asks[Written]):
    """Compile a placement and write it as an artifact; pieces in the cache are not compiled again."""

    regions: tuple[Region, ...]
    """As in :class:`PlacementJob`."""
    artifact: str
    info: Mapping[str, Any]
    """Build information for the manifest."""


@dataclass(frozen=True)
class OpenJob(Asks[Opened]):
    """Load an artifact, check it against every reference input, and leave it open.

    The answer contains the cost of loading in a process that loaded no backend before.
    """

    artifact: str
    edges: bool = True
    """Whether to check it on inputs at the edge of what the model may be given, if it computes in float32."""


@dataclass(frozen=True)
class JudgeJob(Asks[Judgement]):
    """Load an artifact and report its error, with an interval; no bound applies."""

    artifact: str
    samples: str
    """File of samples with their expected outputs, as ``accuracy/samples.py`` writes them."""
    moves: bool = True
    """Whether to measure how far rows move in a batch and beside padding."""


@dataclass(frozen=True)
class TimeJob(Asks[Timed]):
    """Time the artifact that was opened last."""

    timing: TimingSettings
    attempts: int = 1
    """Maximum number of repeats under contention."""


@dataclass(frozen=True)
class ReloadJob(Asks[SampleBatches]):
    """Replace all open artifacts by these, in this order, and warm each up with a sample batch.

    ``seed`` draws their addresses in memory: blocks of random sizes are allocated before each.
    """

    artifacts: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class SampleBatchesJob(Asks[SampleBatches]):
    """Run a sample batch of each of the open ``artifacts`` in turn; the list may repeat one."""

    artifacts: tuple[str, ...]


@dataclass(frozen=True)
class SampleJob(Asks[Timed]):
    """Run a sample batch of an artifact, which stays open, on the only sample in a file; the ``first`` time after a
    run, which plans buffers for its shapes."""

    artifact: str
    sample: str
    first: bool


@dataclass(frozen=True)
class ProfileJob(Asks[Profiled]):
    """Time each region of the artifact that was opened last, one median a region, and what a call adds to them.

    After ``seconds`` fewer than ``runs`` suffice, three at least.
    """

    runs: int
    seconds: float = 2.0


@dataclass(frozen=True)
class TraceJob(Asks[Traced]):
    """Run an artifact so many times with its libraries' profilers on."""

    artifact: str
    runs: int


RaceJob = OpenJob | TimeJob | ReloadJob | SampleBatchesJob | SampleJob
TimedJob = (
    CostJob | KernelsJob | CopyJob | PlacementJob | WholeJob | FallbackJob | JudgeJob
    | ProfileJob | TraceJob | RaceJob
)
Job = BuildJob | TuneJob | ArtifactJob | TimedJob


def bare(part: Part) -> Region:
    """``part`` as jobs contain it: the input of its compilation, without values of the search."""
    return Region(part.nodes, *part.family, part.edits)


def regions_of(placement: Placement) -> tuple[Region, ...]:
    """The regions of ``placement`` as jobs contain them."""
    return tuple(map(bare, placement.regions))


def recorded_regions(info: Mapping[str, Any], pieces: int) -> tuple[Region, ...]:
    """The regions that the ``pieces`` of an artifact's profile with this information were compiled from; empty for
    the user's file.

    Raises:
        InputError: it lists something else.
    """
    try:
        regions = from_plain(info.get(REGIONS, []), tuple[Region, ...])
    except ValueError as error:
        raise InputError(f"the artifact lists no regions ({error}): run the search again") from error
    if len(regions) not in (0, pieces):
        raise InputError(f"the artifact lists {len(regions)} regions for {pieces} pieces: run the search again")
    return regions
