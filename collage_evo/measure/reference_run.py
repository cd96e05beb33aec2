"""Timing against a reference run: sample batches of both alternate, and only their ratio counts.

Clock drift and neighbours affect both sides alike, so few short batches are as precise as one long timing, and one
pair suffices for a slow placement. On several threads the reference run has a process of its own
(``measure/reference_process.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.measure.sample_batches import SampleBatch, log_ratio, sample_batch
from collage_evo.measure.stopwatch import SingleSession
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.runtime.timing import LONG_S, WARM_UP_GAIN, Timing, TimingSettings
from collage_evo.target.interference import Others


@dataclass(frozen=True)
class ReferenceRun:
    """The reference of a timing: a function that runs a sample batch of it, and its nominal latency in ms.

    ``used_s``: processor time that it has used in another process than this one.
    """

    sample_batch: Callable[[], SampleBatch]
    latency_ms: float
    used_s: Callable[[], float] = lambda: 0.0


def time_against(
    reference_run: ReferenceRun,
    tried: SingleSession,
    settings: TimingSettings,
    give_up_ms: float = math.inf,
    best_ms: float = math.inf,
    policy: Policy = DEFAULT_POLICY,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Milliseconds of ``tried``, one value per pair of sample batches: its ratio to the reference run, times the
    reference run's latency.

    ``tried`` is warm. ``settings`` bounds the runs and seconds; the timing ends earlier once the pairs decide it,
    which takes few pairs for a placement slower than ``give_up_ms`` or ``best_ms``; ``policy`` sets how few.
    """
    begin, others = clock(), Others(reference_run.used_s)
    values: list[float] = []
    runs, timed_ms = 0, 0.0
    lost_ms = min(give_up_ms, best_ms)
    while True:
        # The second of a pair finds the caches as the first left them: the order alternates.
        before = len(values) % 2 == 0
        reference_ms = reference_run.sample_batch() if before else ()
        own = sample_batch(tried)
        reference_ms = reference_ms if before else reference_run.sample_batch()
        values.append(reference_run.latency_ms * math.exp(log_ratio([own], [reference_ms])))
        runs, timed_ms = runs + len(own), timed_ms + sum(own)
        enough = runs >= settings.min_runs and timed_ms >= settings.min_seconds * 1e3
        if enough or _is_decided(values, lost_ms, policy) or clock() - begin >= settings.max_seconds:
            return Timing(tuple(values), others.share())


def _is_decided(values_ms: Sequence[float], lost_ms: float, policy: Policy) -> bool:
    """Whether the pairs so far show a latency above ``lost_ms``, or give the latency precisely enough."""
    if len(values_ms) < policy.least_pairs:
        return min(values_ms) > policy.first_pair * lost_ms
    logs = np.log(values_ms)
    off = policy.standard_errors * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    known = off < policy.near_error and len(logs) >= policy.near_pairs
    return known or float(np.median(logs)) - off > math.log(lost_ms)


def warm_up(
    tried: SingleSession, runs: int, give_up_ms: float = math.inf, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Untimed runs; only one for a session that is far too slow, which has run before, if only for the check."""
    for _ in range(runs):
        start = clock()
        tried.session.execute()
        spent_ms = (clock() - start) * 1e3
        if spent_ms > give_up_ms and (spent_ms > WARM_UP_GAIN * give_up_ms or spent_ms >= LONG_S * 1e3):
            return
