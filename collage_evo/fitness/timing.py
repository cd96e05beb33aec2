"""Timing of loaded sessions: in sample batches, at a region's cost inside the model, per call."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collage_evo.backends.registry import get_backend
from collage_evo.fitness.cold_caches import Flush, flush_bytes, widths_of
from collage_evo.fitness.jobs import CostJob
from collage_evo.graph.ir.graph import Graph
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import LONG_S, WARM_UP_GAIN, Clock, TimedInputs, Timing, TimingSettings, measure
from collage_evo.statistics import robust_deviation

BATCH_RUNS = TimingSettings(warmup=0, min_runs=3, min_seconds=0.01, max_seconds=0.1)
"""Three runs or 10 ms, whichever is more; at most 100 ms, so that one run of a large model is a batch."""
LEAST_S = 5.0
"""Seconds that any run may take."""

SampleBatch = tuple[float, ...]
"""Times of a few runs in a row in ms, without the first third: those run on caches that another session filled."""


@dataclass
class SingleSession:
    """One session of a whole model, with the interface of :class:`collage_evo.runtime.crowd.Crowd`, which has
    several."""

    session: Session
    inputs: TimedInputs | None = None

    @property
    def sessions(self) -> tuple[Session, ...]:
        return (self.session,)

    def feed(self, inputs: TimedInputs) -> None:
        self.inputs = inputs
        self.session.feed(inputs.feeds[0])

    def execute(self) -> float | None:
        """Run once; on inputs of several shapes on each of them, which gives the expected latency in ms."""
        if self.inputs is None or len(self.inputs.feeds) < 2:
            self.session.execute()
            return None
        expected_ms = 0.0
        for feeds, weight in zip(self.inputs.feeds, self.inputs.weights, strict=True):
            self.session.feed(feeds)
            begin = time.perf_counter()
            self.session.execute()
            expected_ms += weight * (time.perf_counter() - begin) * 1e3
        return expected_ms

    def measure(self, settings: TimingSettings, give_up_ms: float = math.inf, behind_ms: float = math.inf) -> Timing:
        """Time from host to host by the clock, including copies to and from an accelerator and the wait for it.

        Without warm-up runs the accelerator is not warmed up either: the caller has just used it.
        """
        clock = self.session.clock
        warm_s = clock.warm_s if clock and settings.warmup else 0.0
        return measure(self.execute, settings, give_up_ms=give_up_ms, behind_ms=behind_ms, warm_s=warm_s)


def sample_batch(at_work: SingleSession | Crowd) -> SampleBatch:
    """A sample batch of sessions that are ready to run."""
    return batch_of(at_work.measure(BATCH_RUNS))


def batch_of(timing: Timing) -> SampleBatch:
    """The sample batch of a timing in :data:`BATCH_RUNS`."""
    return timing.times_ms[timing.n // 3 :]


def log_ratios(slow: Sequence[SampleBatch], fast: Sequence[SampleBatch]) -> np.ndarray:
    """Logarithms of the speed-up of ``fast``, one for each pair of neighbouring batches."""
    return np.array([np.log(np.median(a) / np.median(b)) for a, b in zip(slow, fast, strict=True)])


def log_ratio(slow: Sequence[SampleBatch], fast: Sequence[SampleBatch]) -> float:
    """The median of :func:`log_ratios`."""
    return float(np.median(log_ratios(slow, fast)))


def region_timer(
    session: Session, job: CostJob, graph: Graph, feeds: Mapping[str, Any], flush: Callable[[], Flush]
) -> Callable[[], Timing]:
    """A timer of a region of ``graph`` at its cost inside the model: weights cold, inputs warm.

    By an accelerator's clock it excludes copies of inputs and outputs: borders are measured separately.
    """
    region = job.region
    widths = widths_of(*region.family, region.numerics)
    variant = get_backend(region.family[0]).variant(region.family[1])
    between = flush_bytes(graph, region.nodes, widths, variant) if job.flush else 0
    if (clock := session.clock) is not None:
        once = partial(clock.time_ms, between)
        return partial(measure, once, job.timing, give_up_ms=job.give_up_ms, warm_s=clock.warm_s)
    ballast = flush()

    def prepare() -> None:
        ballast.read(between)
        session.feed(feeds)

    return partial(measure, session.execute, job.timing, prepare, job.give_up_ms)


def warm_timer(session: Session, timing: TimingSettings) -> Callable[[], Timing]:
    """A timer of a region with warm caches; by an accelerator's clock it excludes copies of inputs and outputs."""
    if (clock := session.clock) is None:
        return partial(measure, session.execute, timing)
    return partial(measure, clock.time_ms, timing, warm_s=clock.warm_s)


def time_call_ms(
    session: Session,
    feeds: Mapping[str, Any],
    seconds: float = 0.2,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Milliseconds that ``session.run`` takes beyond ``session.execute``: checks, and copies of inputs and outputs.

    Both run alternately on the same inputs, at least three times. The result is the median difference less twice its
    standard error, at least 0: of a model of 80 ms three differences scatter by more than any call takes. Of a
    model of :data:`LONG_S` it is not measured: None.
    """
    differences: list[float] = []
    session.feed(feeds)
    begin = clock()
    while len(differences) < 3 or (len(differences) < 300 and clock() - begin < seconds):
        first = clock()
        session.run(None, feeds)
        second = clock()
        session.execute()
        third = clock()
        differences.append(2 * second - first - third)
        if third - second >= LONG_S:
            return None
    values = np.array(differences)
    median = float(np.median(values))
    # A few differences have no robust deviation; of ten and more, a contended run does not inflate it.
    spread = np.std(values, ddof=1) if len(values) < 10 else robust_deviation(differences)
    return max(0.0, 1e3 * (median - 2 * float(spread) / math.sqrt(len(values))))


def throttled(session: Session) -> bool:
    """Whether the session's accelerator, if any, is slower now than it could be."""
    return session.clock is not None and session.clock.throttled()


def timeout_s(give_up_ms: float, clock: Clock | None = None) -> float:
    """Timeout of a first run in seconds, if a warm run longer than ``give_up_ms`` is too slow."""
    return max(clock.first_run_s if clock else LEAST_S, WARM_UP_GAIN * give_up_ms / 1e3)


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Context in which ``SIGALRM`` kills the process after this time; its parent sees the signal.

    A library's call cannot be interrupted otherwise.
    """
    if not math.isfinite(seconds):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
