"""How a session is timed: takes it loaded and fed, gives raw times; of a device's regions by the device's events."""

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


@dataclass(frozen=True)
class SingleSession:
    """One session of a whole model, as :class:`collage_evo.runtime.crowd.Crowd` has several."""

    session: Session

    @property
    def sessions(self) -> tuple[Session, ...]:
        return (self.session,)

    def feed(self, feeds: Mapping[str, Any]) -> None:
        self.session.feed(feeds)

    def measure(self, settings: TimingSettings, give_up_ms: float = math.inf, behind_ms: float = math.inf) -> Timing:
        """From host to host by the clock: copies to a device and from it, and waiting for it, are part of it.

        Without warm-up a device is not warmed up either: somebody has just been at work on it.
        """
        warm_s = _warm_s(self.session) if settings.warmup else 0.0
        return measure(self.session.execute, settings, give_up_ms=give_up_ms, behind_ms=behind_ms, warm_s=warm_s)


def region_timer(
    session: Session, job: CostJob, graph: Graph, feeds: Mapping[str, Any], flush: Callable[[], Flush]
) -> Callable[[], Timing]:
    """What times a region of ``graph`` as it is paid inside the model: weights cold, inputs warm.

    On a device without copies of inputs and outputs: what a border costs is measured apart.
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

    Both run in turns on the same inputs, at least three times; it is the median of the differences, and at least 0.
    """
    differences: list[float] = []
    begin = time.perf_counter()
    while len(differences) < 3 or (len(differences) < most and time.perf_counter() - begin < seconds):
        first = time.perf_counter()
        session.run(None, feeds)
        second = time.perf_counter()
        session.execute()
        differences.append(2 * second - first - time.perf_counter())
    return max(0.0, 1e3 * float(np.median(differences)))


def throttled(session: Session) -> bool:
    """Whether the device that the session runs on, if any, is slower now than it could be."""
    return session.device is not None and bool(session.device.health().throttled)


def _warm_s(session: Session) -> float:
    return DEVICE_WARM_UP_S if session.device is not None else 0.0
