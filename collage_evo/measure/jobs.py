"""What a measuring process is asked to do: records that travel as lines of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage_evo.accuracy.judge import Judgement, Over
from collage_evo.accuracy.limits import Limits
from collage_evo.backends.registry import Origin
from collage_evo.graph.ir import NodeSet
from collage_evo.measure.answers import (
    Asks,
    Compiled,
    KernelTimes,
    Measured,
    Opened,
    Profiled,
    SampleBatches,
    Timed,
    TunedKernels,
    Written,
)
from collage_evo.measure.work_files import WorkFiles
from collage_evo.patterns.match import Part, Placement, Region
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.runtime.timing import TimingSettings
from collage_evo.target.target import Target

REGIONS = "regions"
"""Under which an artifact's information has its regions: what its pieces were compiled from."""


@dataclass(frozen=True)
class Setting:
    """What all jobs of one run share. Paths as text, so that the value travels."""

    work: str
    """The directory of :attr:`files`."""
    cache: str
    cache_bytes: int
    target: Target
    """On any cores: each measuring process has its own."""
    limits: Limits
    """How wrong results may be."""
    registered: tuple[Origin, ...] = ()
    """Backends that are not found by entry point."""
    run: str = ""
    """Which run it is, for others that wait for it: process id and run directory."""
    metric: str = ""
    """Name of a metric or ``file.py:function``, whose drop is the error; empty for the relative error (2-norm)."""
    over: Over = "all"
    """Which error the budget bounds: that of all samples together, or that of the worst."""
    keeps_nonfinite: bool = False
    """Whether NaN and infinity in inputs must not be lost."""
    policy: Policy = DEFAULT_POLICY
    """When a placement, or a single library, is behind; how long both are timed."""
    sessions: int = 1
    """Sessions of a whole model that run at once while it is timed, each on the target's threads. Of several the
    machine's time for a run is taken: :class:`collage_evo.runtime.crowd.Tally`. Parts of a model are timed alone."""

    @property
    def files(self) -> WorkFiles:
        """What all jobs read."""
        return WorkFiles(Path(self.work))


@dataclass(frozen=True)
class Begin:
    """The first line that a measuring process gets: what all its jobs share, and the cores that it is pinned to."""

    setting: Setting
    cores: tuple[int, ...]


@dataclass(frozen=True)
class BuildJob(Asks[Compiled]):
    """Compile a region into the cache."""

    region: Region


@dataclass(frozen=True)
class CostJob(Asks[Measured]):
    """Time one match as it will be paid inside the model: weights cold, inputs warm."""

    region: Region
    timing: TimingSettings
    give_up_ms: float
    flush: bool


@dataclass(frozen=True)
class KernelsJob(Asks[KernelTimes]):
    """Have a library tell what each of its kernels takes in a region that runs as a whole, and time that region."""

    region: Region
    timing: TimingSettings
    seconds: float
    """For the runs with the profiler."""


@dataclass(frozen=True)
class CopyJob(Asks[Measured]):
    """Time copies of ``nbytes`` to the target's device, or back to the host, ``runs`` of them."""

    nbytes: int
    to_device: bool
    runs: int


@dataclass(frozen=True)
class PlacementJob(Asks[Measured]):
    """Check a placement against the reference, then time it end to end: against an anchor, where there is one.

    It is judged on few samples, and on all of them only where it may be the answer: where it did not lose the race.
    """

    regions: tuple[Region, ...]
    """In the order in which they run."""
    timing: TimingSettings
    give_up_ms: float
    best_ms: float = math.inf
    """The fastest so far that may be the answer: what is behind for certain is timed no further."""
    reference_run: str = ""
    """An artifact of whose latency that of the placement is a multiple."""
    reference_run_ms: float = math.nan
    """The latency of the anchor."""


@dataclass(frozen=True)
class TuneJob(Asks[TunedKernels]):
    """Let a backend try more ways of running a match's kernels."""

    nodes: NodeSet
    backend: str
    records: str
    """Directory with what was tried."""
    trials: int


@dataclass(frozen=True)
class WholeJob(Asks[Measured]):
    """Compile the person's model as one piece, write it as an artifact, check and time it."""

    backend: str
    variant: str
    artifact: str
    timing: TimingSettings
    give_up_ms: float = math.inf


@dataclass(frozen=True)
class FallbackJob(Asks[Measured]):
    """Compile the person's model with its shapes left open, write it as an artifact, check and time it.

    A fall-back meets shapes that it has not met before, for which some libraries compile anew: what is timed is the
    first run of a session just loaded.
    """

    backend: str
    variant: str
    artifact: str
    loads: int = 3
    """Sessions whose first run is timed; fewer if that takes longer than ``seconds``."""
    seconds: float = 5.0


@dataclass(frozen=True)
class ArtifactJob(Asks[Written]):
    """Compile a placement and write it as an artifact; what the cache still has is not compiled again."""

    regions: tuple[Region, ...]
    """As in :class:`PlacementJob`."""
    artifact: str
    info: Mapping[str, Any]
    """Information about its making, for the manifest."""


@dataclass(frozen=True)
class OpenJob(Asks[Opened]):
    """Load an artifact, check it against every reference input, keep it ready for ``TimeJob``.

    The answer tells what loading took, for a process that loaded no backend before.
    """

    artifact: str


@dataclass(frozen=True)
class JudgeJob(Asks[Judgement]):
    """Load an artifact and tell how wrong it is, with an interval: no bound is held against it."""

    artifact: str
    samples: str
    """File of samples with what they ought to give, as ``accuracy/samples.py`` keeps them."""


@dataclass(frozen=True)
class TimeJob(Asks[Timed]):
    """Time the artifact that was opened last."""

    timing: TimingSettings
    attempts: int = 1
    """How often at most, while others disturb it."""


@dataclass(frozen=True)
class ReloadJob(Asks[SampleBatches]):
    """Load artifacts anew in place of all that is open, in this order, and warm each up by a burst of runs.

    ``seed`` draws where in memory they lie: blocks of random sizes are taken before each.
    """

    artifacts: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class SampleBatchesJob(Asks[SampleBatches]):
    """A burst of runs of each of ``artifacts`` in turn, which are open: the same one may be named again."""

    artifacts: tuple[str, ...]


@dataclass(frozen=True)
class ProfileJob(Asks[Profiled]):
    """Time each region of the artifact that was opened last, one median a region, and what a call adds to them."""

    runs: int


RaceJob = OpenJob | TimeJob | ReloadJob | SampleBatchesJob
TimedJob = CostJob | KernelsJob | CopyJob | PlacementJob | WholeJob | FallbackJob | JudgeJob | ProfileJob | RaceJob
Job = BuildJob | TuneJob | ArtifactJob | TimedJob


def bare(part: Part) -> Region:
    """``part`` as jobs have it: what it is compiled from, and nothing of the search."""
    return Region(part.nodes, *part.family, part.edits)


def regions_of(placement: Placement) -> tuple[Region, ...]:
    """The regions of ``placement`` as jobs have them."""
    return tuple(map(bare, placement.regions))
