"""Timing against the reference run: sample batches of both take turns, and their ratio counts.

A clock that drifts and other programs on the machine affect both sides equally, so few short batches are as good as
a long timing, and one pair is enough for what is slow. With several threads the reference run has its own process
(``reference_process.py``), because thread pools of two libraries in one process slow each other down.
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
    """What others are timed against: a burst of it, and the latency in ms that counts as its own.

    ``used_s``: time that it has used of the cores in another process than this one.
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
    """Milliseconds of ``tried``, one value a pair of bursts: its ratio to the anchor's times the anchor's latency.

    ``tried`` is warm. As many pairs as ``settings`` want runs and seconds at most: none after those that tell enough,
    which are few of what is slower than ``give_up_ms`` or ``best_ms``; ``policy`` says how few.
    """
    begin, others = clock(), Others(reference_run.used_s)
    values: list[float] = []
    runs, timed_ms = 0, 0.0
    lost_ms = min(give_up_ms, best_ms)
    while True:
        # Who comes second finds caches as the other left them: in turn.
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
    """Whether the pairs so far show that it takes longer than ``lost_ms``, or tell what it takes exactly enough."""
    if len(values_ms) < policy.least_pairs:
        return min(values_ms) > policy.first_pair * lost_ms
    logs = np.log(values_ms)
    off = policy.standard_errors * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    known = off < policy.near_error and len(logs) >= policy.near_pairs
    return known or float(np.median(logs)) - off > math.log(lost_ms)


def warm_up(
    tried: SingleSession, runs: int, give_up_ms: float = math.inf, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Runs that do not count; one alone of what is far too slow, which has run before, if only to be checked."""
    for _ in range(runs):
        start = clock()
        tried.session.execute()
        spent_ms = (clock() - start) * 1e3
        if spent_ms > give_up_ms and (spent_ms > WARM_UP_GAIN * give_up_ms or spent_ms >= LONG_S * 1e3):
            return
