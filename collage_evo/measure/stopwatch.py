"""Timing of a loaded session by the clock, and of a device's regions by the device's events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collage_evo.graph.ir import Graph
from collage_evo.measure.cold_caches import Flush, device_flush_bytes, flush_bytes, widths_of
from collage_evo.measure.jobs import CostJob
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import DEVICE_WARM_UP_S, Timing, TimingSettings, measure
from collage_evo.statistics import robust_deviation


@dataclass(frozen=True)
class SingleSession:
    """One session of a whole model, with the interface of :class:`collage_evo.runtime.crowd.Crowd`, which has
    several."""

    session: Session

    @property
    def sessions(self) -> tuple[Session, ...]:
        return (self.session,)

    def feed(self, feeds: Mapping[str, Any]) -> None:
        self.session.feed(feeds)

    def measure(self, settings: TimingSettings, give_up_ms: float = math.inf, behind_ms: float = math.inf) -> Timing:
        """Time from host to host by the clock, including copies to and from a device and the wait for it.

        Without warm-up runs the device is not warmed up either: the caller has just used it.
        """
        warm_s = _warm_s(self.session) if settings.warmup else 0.0
        return measure(self.session.execute, settings, give_up_ms=give_up_ms, behind_ms=behind_ms, warm_s=warm_s)


def region_timer(
    session: Session, job: CostJob, graph: Graph, feeds: Mapping[str, Any], flush: Callable[[], Flush]
) -> Callable[[], Timing]:
    """A timer of a region of ``graph`` at its cost inside the model: weights cold, inputs warm.

    On a device it excludes copies of inputs and outputs: borders are measured separately.
    """
    region = job.region
    widths = widths_of(*region.family, region.numerics)
    if session.device is not None:
        cold = device_flush_bytes(graph, region.nodes, widths) if job.flush else 0
        once = partial(session.time_device_ms, cold)
        return partial(measure, once, job.timing, give_up_ms=job.give_up_ms, warm_s=_warm_s(session))
    between = flush_bytes(graph, region.nodes, widths) if job.flush else 0
    ballast = flush()

    def prepare() -> None:
        ballast.read(between)
        session.feed(feeds)

    return partial(measure, session.execute, job.timing, prepare, job.give_up_ms)


def time_call_ms(session: Session, feeds: Mapping[str, Any], seconds: float = 0.2, most: int = 300) -> float:
    """Milliseconds that ``session.run`` takes beyond ``session.execute``: checks, and copies of inputs and outputs.

    Both run alternately on the same inputs, at least three times. The result is the median difference less twice its
    standard error, at least 0: of a model of 80 ms three differences scatter by more than any call takes.
    """
    differences: list[float] = []
    begin = time.perf_counter()
    while len(differences) < 3 or (len(differences) < most and time.perf_counter() - begin < seconds):
        first = time.perf_counter()
        session.run(None, feeds)
        second = time.perf_counter()
        session.execute()
        differences.append(2 * second - first - time.perf_counter())
    values = np.array(differences)
    median = float(np.median(values))
    # A few differences have no robust deviation; of ten and more, a contended run does not inflate it.
    spread = np.std(values, ddof=1) if len(values) < 10 else robust_deviation(differences)
    return max(0.0, 1e3 * (median - 2 * float(spread) / math.sqrt(len(values))))


def throttled(session: Session) -> bool:
    """Whether the session's device, if any, is slower now than it could be."""
    return session.device is not None and bool(session.device.health().throttled)


def _warm_s(session: Session) -> float:
    return DEVICE_WARM_UP_S if session.device is not None else 0.0
