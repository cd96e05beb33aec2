"""Schema of the result of a run, as its ``result.json`` has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collage_evo.accuracy.invariance import Invariance
from collage_evo.accuracy.judge import Over, Quality
from collage_evo.answer.answer import Proof
from collage_evo.backends.tuning import Kernel
from collage_evo.backends.variants import Arithmetic, engine_name
from collage_evo.hardware.target import CPU, Target
from collage_evo.report.sizes import LatencyBySize
from collage_evo.report.words import format_number
from collage_evo.runtime.timing import Timing
from collage_evo.search.evolution.origin import OriginText

SCHEMA = 6
"""Of a ``result.json``; a reader refuses another."""


@dataclass(frozen=True)
class Latency:
    """Summary of timed runs, ms; or the reason why there are none.

    ``reason`` is a sentence; ``detail`` is the library's own message, if that differs. ``scaled``: it took no part in
    the final comparison; its earlier time is scaled to that.
    """

    name: str
    median_ms: float | None = None
    p10_ms: float | None = None
    p90_ms: float | None = None
    n: int = 0
    reason: str = ""
    detail: str = ""
    scaled: bool = False

    @classmethod
    def of(cls, name: str, timing: Timing) -> Latency:
        return cls(name, timing.median_ms, timing.p10_ms, timing.p90_ms, timing.n)

    def times(self, scale: float) -> Latency:
        """The same on the scale of the final comparison, whose times are ``scale`` times as long."""
        if self.median_ms is None:
            return self
        ends = (None if ms is None else ms * scale for ms in (self.median_ms, self.p10_ms, self.p90_ms))
        median_ms, p10_ms, p90_ms = ends
        return replace(self, median_ms=median_ms, p10_ms=p10_ms, p90_ms=p90_ms, scaled=True)


@dataclass(frozen=True)
class SeedResult:
    """A seed of the first population: predicted and measured latency, ms; ``latency`` is the race's if it raced.

    ``what``: which libraries run how much of it in which precision, in words.
    """

    kind: OriginText
    predicted_ms: float
    latency: Latency
    what: str = ""


@dataclass(frozen=True)
class FrontPoint:
    """A measured placement or single backend, as a point of latency against error.

    Attributes:
        latency_ms: median; from the final race if it took part (``raced``), else an earlier one, multiplied by the
            ratio of the race's times to earlier times.
        error: on the samples of the search, as the metric has it: relative 2-norm error, or drop. None: unknown.
        key: of the placement; empty for the user's own file in one backend.
        how: its origin, in words.
        arithmetics: names of its parts' arithmetics.
        single: the engine's name where it is a single backend on the user's own file.
        feasible: within the budget.
        pareto: nothing measured is faster at no larger error; see :func:`collage_evo.run.front.marked`.
        held_out: the error that it has, or may have, on held-out samples, where it exceeds the budget on them.
        remark: why it is not the answer, though it is within the budget and seems faster.
        what: which libraries run how much of it in which precision, in words.
        p10_ms, p90_ms: 10th and 90th percentile of the runs behind ``latency_ms``, on its scale; None: not recorded.
    """

    latency_ms: float
    error: float | None
    key: str
    how: str
    arithmetics: tuple[str, ...]
    single: str = ""
    feasible: bool = False
    answer: bool = False
    pareto: bool = False
    raced: bool = False
    remark: str = ""
    what: str = ""
    held_out: float | None = None
    p10_ms: float | None = None
    p90_ms: float | None = None

    @property
    def exact(self) -> bool:
        """Whether it computes in float32 throughout, so that its error is rounding only."""
        return self.arithmetics == (Arithmetic.FLOAT32.value,)

    @property
    def others(self) -> str:
        """Its objectives other than latency, in words."""
        return format_number(self.error)


@dataclass(frozen=True)
class InvarianceResult:
    """How far the outputs of a row move in a batch and beside padding: of the answer, and in float32."""

    answer: Invariance
    float32: Invariance


@dataclass(frozen=True)
class Accuracy:
    """Error of the answer, and the samples of its measurement.

    Attributes:
        metric: its name or ``file.py:function``; empty for the relative 2-norm error of the outputs.
        budget: the largest error or drop allowed, as it was asked for, or ``exact``: float32 throughout.
        largest: this budget as an error; None if there is no bound.
        error_search: the answer's, on the samples that the search saw; None where it could not be compared.
        error_held_out: on samples that the search never saw; None where there were none.
        interval: 95 % interval of ``error_held_out``, None if it has none, for example for a worst sample's.
        samples: how many ``calibration``, ``search`` and ``held_out`` samples there were.
        random: they are random numbers, not the user's data.
        notes: explanations of the above.
        over: whether errors are of ``all`` samples together, or of the ``worst`` one.
        held_out: results of each metric on the held-out samples: the chosen one first, then the relative error and
            other usual metrics.
        over_budget: the number of held-out samples whose own error exceeds ``largest``; None: not known.
        unseen: the search did not see the held-out samples; False if there were too few to set some aside.
        invariance: of rows in a batch and beside padding; None if the answer has fixed shapes, or none was measured.
    """

    metric: str
    budget: float | str
    largest: float | None
    error_search: float | None
    error_held_out: float | None
    interval: tuple[float, float] | None
    samples: Mapping[str, int]
    random: bool
    notes: Sequence[str] = ()
    over: Over = "all"
    held_out: Sequence[Quality] = ()
    over_budget: int | None = None
    unseen: bool = True
    invariance: InvarianceResult | None = None

    @property
    def error(self) -> float | None:
        """The error that the budget limits: on held-out samples if there are any, else on those of the search."""
        return self.error_search if self.error_held_out is None else self.error_held_out


@dataclass(frozen=True)
class RewrittenNodes:
    """Nodes that a rewrite replaced, and its name."""

    rewrite: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """One operator of the answer: its kind, as ``Conv``, and the arithmetic that it runs in.

    Two that differ only in ``name``, that of its first node, and ``ms`` are equal, as pages fold what repeats.
    ``ms``: its time in one run by its library's profile, on the scale of the region's; 0 where the library fuses it
    into another one, None where the library tells nothing.
    """

    kind: str
    arithmetic: str
    name: str = field(default="", compare=False)
    ms: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RegionResult:
    """One region of the answer: its engine and nodes, its share of one run, ms, and the nodes in int8.

    ``measured_ms`` is on the scale of the final comparison: the regions of a latency's answer add up to its median.
    ``lanes``: the steps of each lane, in words, if parts of it run in parallel. ``rewrites``: which of its nodes are
    rewritten. ``operators``: those that run, in order; a composite one stands for several ``nodes``.
    """

    backend: str
    variant: str
    nodes: tuple[str, ...]
    measured_ms: float | None
    int8: tuple[str, ...] = ()
    device: str = CPU
    lanes: tuple[tuple[str, ...], ...] = ()
    rewrites: tuple[RewrittenNodes, ...] = ()
    operators: tuple[Operator, ...] = ()

    @property
    def engine(self) -> str:
        """Its engine in words."""
        return engine_name(self.backend, self.variant) + (f", {len(self.lanes)} lanes" if self.lanes else "")


@dataclass(frozen=True)
class SavedResult:
    """Operators of one kind that the answer runs in one lower precision: what that saves, and what it costs.

    Attributes:
        saved_ms: their part of what the answer takes less than the same library in float32, on the scale of the final
            comparison, apportioned by the costs of the search; None if that baseline has no time, or several
            libraries run the answer.
        error_share: their part in the squared error that sensitivities predict for the answer, 0 to 1.
    """

    arithmetic: str
    kind: str
    operators: int
    saved_ms: float | None
    error_share: float


@dataclass(frozen=True)
class ServingResult:
    """Cost of serving an artifact: bytes on disk; peak memory and time to load if it ran in the final race.

    ``peak_bytes``: peak resident memory of a fresh process during loading and a run, minus its memory before any
    backend was loaded. ``load_ms`` includes the checks of all files and the import of the libraries.
    """

    name: str
    disk_bytes: int
    peak_bytes: int | None
    load_ms: float | None


@dataclass(frozen=True)
class Speedup:
    """Ratio of latencies: geometric mean over paired rounds, its interval, and the rounds' ratios.

    ``by_definition`` if the answer is the library itself; ``seconds``: the time over which the rounds were spread;
    ``level``: of the interval.
    """

    estimate: float
    low: float
    high: float
    rounds: tuple[float, ...]
    by_definition: bool = False
    seconds: float = 0.0
    level: float = 0.98


@dataclass(frozen=True)
class LibraryResult:
    """A library on the user's own file with its defaults except for the number of threads, and the answer's speed-up.

    Attributes:
        name: of its baseline, as ``openvino/bf16``.
        latency_ms: median, in the same race as the answer if it took part; None: it did not.
        error: its own, on the samples of the search; None: unknown.
        speedup: of the answer; ``by_definition`` if it is the answer.
        keeps: whether it is within the error budget, on all samples.
    """

    name: str
    backend: str
    variant: str
    latency_ms: float | None
    error: float | None
    speedup: Speedup
    keeps: bool = True


@dataclass(frozen=True)
class SearchResult:
    """Effort of the search, and the times of its improvements."""

    evaluations: int
    unfit: Mapping[str, int]
    generations: int
    cache_hits: int
    wall_seconds: float
    time_to_best_seconds: float
    evaluations_to_best: int
    convergence: Sequence[Mapping[str, float]]
    skipped: bool = False
    """Whether the run ended with its first placements, because a search would have exceeded the planned time."""


@dataclass(frozen=True)
class Refused:
    """Number of measured matches that one kind of fault makes unusable, and the reason of one of them."""

    matches: int
    example: str


@dataclass(frozen=True)
class CostModelResult:
    """Error of the additive model: relative error of its prediction for the DP's placement."""

    matches: Mapping[str, int]
    refused: Mapping[str, Mapping[str, Refused]]
    """Refused matches by backend/variant and kind of fault."""
    measured: int
    estimated: int
    """Matches whose cost is an estimate from measured ones."""
    contended: int
    """Number of measurements that stayed contended, or ran on distant cores, in every repeat."""
    cache_hits: int
    dp_predicted_ms: float
    dp_measured_ms: float | None
    additive_error: float | None
    borders: Mapping[str, Mapping[str, float]]
    copies: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Costs of copies ``to_device`` and ``to_host``; empty if all engines run on the host."""


@dataclass(frozen=True)
class TunedResult:
    """A structure that trials were spent on: one place of ``count``, a piece's times (ms; None: not usable)."""

    nodes: tuple[str, ...]
    count: int
    untuned_ms: float
    tuned_ms: float | None
    best_other_ms: float | None
    bound_ms: float
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class TuningResult:
    """Effort and gain of tuning a backend's kernels: trials on record, new ones of this run, seconds."""

    backend: str
    variant: str
    trials: int
    new_trials: int
    seconds: float
    kernels: Mapping[str, Kernel]
    structures: Sequence[TunedResult]


@dataclass(frozen=True)
class Speeds:
    """Latency and throughput of the answer, whatever the objective. One is from the final race, the other measured
    once.

    Attributes:
        sessions: the number that fills the machine, each on its threads and cores.
        latency_ms: median time of one run of a single session on the machine.
        machine_ms: time of the full machine for each run: wall time over the runs that all sessions ended in it.
        runs_per_second: of the full machine. A run counts once, whatever its batch.
        reason: why one of them is missing.
    """

    sessions: int
    latency_ms: float | None
    machine_ms: float | None
    runs_per_second: float | None
    reason: str = ""


def finite(ms: float | None) -> float | None:
    """JSON has no infinity: None stands for it."""
    return ms if ms is not None and ms < float("inf") else None


@dataclass(frozen=True)
class Result:
    """Content of ``result.json``."""

    model: Mapping[str, Any]
    target: Mapping[str, Any]
    environment: Mapping[str, Any]
    baselines: Sequence[Latency]
    seeds: Sequence[SeedResult]
    best: Latency
    answer: str
    """``placement`` or, if none beat it, the name of the best single backend."""
    best_single: str
    speedup_over_best_single: Speedup
    candidate_speedup: Speedup
    """Of the best placement over ``rival``; over ``best_single`` if it won, or there is no ``rival``."""
    numerics: Mapping[str, float | None]
    placement: Sequence[RegionResult]
    search: SearchResult | None
    cost_model: CostModelResult | None
    wall_seconds: Mapping[str, float]
    tuning: Sequence[TuningResult]
    accuracy: Accuracy
    front: Sequence[FrontPoint]
    """All points that ran, the smallest error first."""
    serving: Sequence[ServingResult] = ()
    saved: Sequence[SavedResult] = ()
    """By precision and kind of operator, the largest part of the error first; empty if the answer is a baseline, or
    in float32."""
    notes: Sequence[str] = ()
    """Assumptions about the model and its inputs."""
    not_searched: str = ""
    """Why the model only runs whole; ``search`` and ``cost_model`` are then None, and ``seeds`` is empty."""
    objective: str = "latency"
    """The objective. With ``throughput`` all times but those of parts are the full machine's for a run."""
    speeds: Speeds | None = None
    """Latency and throughput of the answer; None if an accelerator takes part."""
    libraries: Sequence[LibraryResult] = ()
    """Libraries that read ONNX files and that the answer replaces: ONNX Runtime, OpenVINO."""
    changed: str = ""
    """A note that the machine changed during the run, if the first and the last time of one thing differ too much."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """Factors from earlier times to those of the final comparison: of ``baselines``, and of the ``search``."""
    call_ms: float | None = None
    """What a call of the answer's ``session.run`` adds at least to ``best``, which times the execution between its
    own buffers, as all times here do; None: not known."""
    by_size: LatencyBySize | None = None
    """Of an open answer, and of the libraries."""
    rival: str = ""
    """The baseline that the best placement is least sure to beat, if none won."""
    proof: Proof = Proof.DECIDED
    """Whether the final comparison decided; where it did not, nothing is proved."""
    schema: int = SCHEMA

    @property
    def made_for(self) -> Target:
        """The target's device and threads, on this machine's processor."""
        return Target(self.target["device"], self.target["threads"])

    @property
    def placed(self) -> bool:
        """Whether a placement is the answer, and not one library."""
        return self.answer == "placement"

    @property
    def best_ms(self) -> float:
        """The answer's median time in the final comparison, ms."""
        return self.best.median_ms or 0.0

    @property
    def point(self) -> FrontPoint | None:
        """The answer as a point of the front; None if it has none."""
        return next((point for point in self.front if point.answer), None)
