"""Sample batches: the times of a few runs in a row, and ratios of two sessions' batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collage_evo.measure.stopwatch import SingleSession
from collage_evo.runtime.crowd import Crowd
from collage_evo.runtime.timing import TimingSettings

BATCH_RUNS = TimingSettings(warmup=0, min_runs=3, min_seconds=0.01, max_seconds=0.1)
"""Three runs or 10 ms, whichever is more; at most 100 ms, so that one run of a large model is a batch."""

SampleBatch = tuple[float, ...]
"""Raw times of single runs in ms."""


def sample_batch(at_work: SingleSession | Crowd) -> SampleBatch:
    """Times of a few runs in a row, without the first third: those run on caches that another session filled."""
    times = at_work.measure(BATCH_RUNS).times_ms
    return times[len(times) // 3 :]


def log_ratios(slow: Sequence[SampleBatch], fast: Sequence[SampleBatch]) -> np.ndarray:
    """Logarithms of the speed-up of ``fast``, one for each pair of neighbouring batches."""
    return np.array([np.log(np.median(a) / np.median(b)) for a, b in zip(slow, fast, strict=True)])


def log_ratio(slow: Sequence[SampleBatch], fast: Sequence[SampleBatch]) -> float:
    """The median of :func:`log_ratios`."""
    return float(np.median(log_ratios(slow, fast)))
