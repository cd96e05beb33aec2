"""Errors of a session over all samples, by the relative 2-norm or a metric.

Without a metric it is the relative 2-norm error of the whole set: of each output the root of the summed squared
differences over the root of the summed squares of the reference, and of these the largest. Labels are right or wrong,
however near, and the error is the share that differs. With a metric it is the metric's error. Over ``worst`` it is
the largest error of any single sample.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Literal

import numpy as np

from collage_evo.accuracy.invariance import Invariance
from collage_evo.accuracy.losses import Losses, Pairs
from collage_evo.accuracy.metric import Metric, RelativeError
from collage_evo.accuracy.named import usual_metrics
from collage_evo.accuracy.samples import Run, Sample
from collage_evo.errors import InputError
from collage_evo.graph.ir.values import Values
from collage_evo.statistics import LEVEL, Interval, bootstrap_interval

Over = Literal["all", "worst"]
"""The error that counts: that of all samples together, or that of the sample with the largest error."""
METRIC_BOOTSTRAPS, LEAST_BOOTSTRAPS = 200, 50
METRIC_SECONDS = 20.0
"""A user's function may be slow: it is resampled as often as time allows, with no interval below the minimum."""


@dataclass(frozen=True)
class Quality:
    """Result of one metric: its error over all samples with a 95 % interval, that of the worst sample, its scores.

    ``name`` is empty for the relative error. None stands for a missing value, and in a report for infinity.
    """

    name: str
    error: float | None
    low: float | None = None
    high: float | None = None
    worst: float | None = None
    score: float | None = None
    reference: float | None = None


@dataclass(frozen=True)
class Judgement:
    """Error of a session over ``samples`` samples.

    Attributes:
        together: the error, or drop of the metric, of all samples together (negative where the metric rose).
        low, high: its 95 % interval over samples; None if there are too few.
        score, reference_score: of the metric; None if it has none.
        changed: share of samples that are judged differently, if a sample is judged right or wrong; else None.
        singles: the error of each sample; empty if the metric accepts no single samples.
        over: the error that counts.
        other_metrics: results of other usual metrics for such outputs.
        invariance: how far rows move in a batch and beside padding, if the session has open sizes.
    """

    together: float
    samples: int
    low: float | None = None
    high: float | None = None
    score: float | None = None
    reference_score: float | None = None
    changed: float | None = None
    singles: tuple[float, ...] = ()
    over: Over = "all"
    other_metrics: tuple[Quality, ...] = ()
    invariance: Invariance = field(default_factory=Invariance)

    @property
    def worst(self) -> float | None:
        """The largest error of a single sample."""
        return max(self.singles, default=None)

    @property
    def error(self) -> float:
        """The error that the budget bounds."""
        return self.together if self.over == "all" or self.worst is None else self.worst

    def chance_over(self, budget: float) -> float:
        """Probability that the error of as many other samples exceeds ``budget``, by a normal distribution as wide as
        the upper half of the interval; 0.0 or 1.0 if there is none."""
        if self.over == "worst" or self.high is None or self.high <= self.together:
            return float(self.error > budget)
        spread = (self.high - self.together) / NormalDist().inv_cdf((1.0 + LEVEL) / 2.0)
        return 1.0 - NormalDist(self.together, spread).cdf(budget)

    def qualities(self, name: str) -> tuple[Quality, ...]:
        """Results of the metric, which is called ``name``, and of the others."""
        named = Quality(name, self.together, self.low, self.high, self.worst, self.score, self.reference_score)
        return (named, *self.other_metrics)

    def beyond(self, budget: float) -> int:
        """Number of single samples with a larger error."""
        return sum(one > budget for one in self.singles)


def run_samples(
    run: Run, samples: Sequence[Sample], seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
) -> Pairs:
    """The outputs for each sample.

    Raises:
        TimeoutError: they took more than ``seconds`` on the clock, which is read after each of them.
    """
    pairs: list[tuple[Sample, Values]] = []
    began = clock()
    for sample in samples:
        names = list(sample.expected)
        pairs.append((sample, dict(zip(names, run(sample.feeds, names), strict=True))))
        if clock() - began > seconds:
            raise TimeoutError(f"{len(pairs)} of {len(samples)} samples took more than {seconds:.0f} s")
    return pairs


def judge(pairs: Pairs, metric: Metric, over: Over = "all", reference: float | None = None) -> float:
    """Error of the outputs in ``pairs``; ``reference``: see :meth:`Metric.scores`.

    Raises:
        InputError: the metric fails, or accepts no single sample and is to be ``over`` the worst.
    """
    if over == "all":
        return metric.scores(pairs, reference).error
    return float(_single(metric, metric.by_sample(pairs)[1]).singles().max(initial=-math.inf))


def judge_closely(pairs: Pairs, metric: Metric, over: Over = "all", seed: int = 0) -> Judgement:
    """The same with each sample's error, an interval, and the results of other metrics. Raises as :func:`judge`."""
    scores, losses = metric.by_sample(pairs)
    if over == "worst":
        _single(metric, losses)
    if losses is not None and losses.adds_up:
        interval, changed = losses.interval(seed), losses.changed()
    else:
        interval, changed = _drawn_interval(pairs, metric, seed), None
    low, high = interval or (None, None)
    samples = [sample for sample, _ in pairs]
    usual: list[Metric] = [*([RelativeError()] if metric.name else []), *usual_metrics(samples)]
    other_metrics = tuple(quality(pairs, other, seed) for other in usual if other.name != metric.name)
    singles = () if losses is None else tuple(map(float, losses.singles()))
    return Judgement(
        scores.error, len(pairs), low, high, scores.score, scores.reference, changed, singles, over, other_metrics
    )


def quality(pairs: Pairs, metric: Metric, seed: int = 0) -> Quality:
    """Result of ``metric`` for ``pairs``; the interval only if its terms add up."""
    scores, losses = metric.by_sample(pairs)
    low, high = (losses.interval(seed) if losses is not None and losses.adds_up else None) or (None, None)
    worst = float(losses.singles().max()) if losses is not None and pairs else None
    return Quality(metric.name, scores.error, low, high, worst, scores.score, scores.reference)


def _single(metric: Metric, losses: Losses | None) -> Losses:
    if losses is None:
        raise InputError(
            f"accuracy.over=worst needs a metric of single samples, which {metric.name} is not: set accuracy.over=all"
        )
    return losses


def _drawn_interval(pairs: Pairs, metric: Metric, seed: int) -> Interval | None:
    """The bootstrap interval of a metric that has to be evaluated for every set of samples."""
    if len(pairs) < 2:
        return None
    began = time.monotonic()

    def drop(indices: np.ndarray) -> float:
        if time.monotonic() - began > METRIC_SECONDS:
            return math.nan
        try:
            return metric.scores([pairs[index] for index in indices]).error
        except InputError:
            return math.nan  # a resampled set may lack what the metric needs, such as one of the classes

    def drops(drawn: np.ndarray) -> np.ndarray:
        return np.array([drop(row) for row in drawn])

    return bootstrap_interval(drops, len(pairs), seed, METRIC_BOOTSTRAPS, least=LEAST_BOOTSTRAPS)
