"""How wrong a session is: takes samples with reference outputs, gives an error over all of them.

Without a metric it is the relative 2-norm error of the whole set: of each output the root of the summed squared
differences over the root of the summed squares of the reference, and of these the largest. Whole numbers of 32 bits
or more and truth values are labels, indices and lengths: one is right or wrong, however near it is, and the error is
the share that differs. With a metric it is the drop of its score against the reference's own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collage_evo.accuracy.metric import Metric
from collage_evo.accuracy.samples import Sample, Values
from collage_evo.errors import InputError
from collage_evo.graph.reference import counted_distances, holds_labels

Run = Callable[[Values, Sequence[str]], Sequence[Any]]
"""From inputs and names of outputs to these outputs, plain (``graph/values.py``)."""
Pairs = Sequence[tuple[Sample, Values]]
"""Samples and what a session gave for each."""
BOOTSTRAPS = 1000
METRIC_BOOTSTRAPS = 200
METRIC_SECONDS = 20.0
"""A person's function may be slow: resampling with it ends then, and there is no interval below a quarter of it."""
NORMAL = 1.96


@dataclass(frozen=True)
class Judgement:
    """How wrong a session is over ``samples`` samples.

    Attributes:
        error: relative error, or drop of the metric (negative where it rose).
        low, high: its 95 % interval over samples; None where there are too few.
        max_abs: largest absolute difference of any output.
        score, reference_score: of the metric; None without one.
        spread: with a metric that is a mean over samples, the mean square of how much each sample's score moved,
            which is the share of samples that are judged otherwise where a score is 0 or 1; else None.
    """

    error: float
    samples: int
    low: float | None = None
    high: float | None = None
    max_abs: float = 0.0
    score: float | None = None
    reference_score: float | None = None
    spread: float | None = None


def run_samples(run: Run, samples: Sequence[Sample], seconds: float = math.inf) -> Pairs:
    """The outputs for each sample.

    Raises:
        TimeoutError: they took more than ``seconds``.
    """
    found: list[tuple[Sample, Values]] = []
    began = time.monotonic()
    for sample in samples:
        names = list(sample.expected)
        found.append((sample, dict(zip(names, run(sample.feeds, names), strict=True))))
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{len(found)} of {len(samples)} samples took more than {seconds:.0f} s")
    return found


def judge(pairs: Pairs, metric: Metric | None = None) -> Judgement:
    """How wrong the outputs in ``pairs`` are; without an interval.

    Raises:
        InputError: the metric fails.
    """
    apart = _Apart.of(pairs)
    if metric is None:
        return Judgement(apart.error(), len(pairs), max_abs=apart.max_abs)
    score, own = _scores(pairs, metric)
    return Judgement(own - score, len(pairs), max_abs=apart.max_abs, score=score, reference_score=own)


def judge_closely(pairs: Pairs, metric: Metric | None = None, seed: int = 0) -> Judgement:
    """The same with an interval: by bootstrap over samples, or by the spread of a metric that is a mean over them.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993: the percentile interval.
    """
    found = judge(pairs, metric)
    if len(pairs) < 2:
        return found
    rng = np.random.default_rng(seed)
    if metric is None:
        return _between(found, _Apart.of(pairs).resampled(rng))
    singles = _single_scores(pairs, metric)
    if singles is None or not _is_mean(singles, found):
        return _between(found, _resampled_drops(pairs, metric, rng))
    moved = singles[:, 1] - singles[:, 0]
    spread = float(np.mean(moved**2))
    # Where no sample moved, one more might have: an interval of nothing would claim too much.
    reach = NORMAL * math.sqrt(max(spread, float(np.abs(singles).max()) ** 2 / len(pairs)) / len(pairs))
    return Judgement(**{**vars(found), "low": found.error - reach, "high": found.error + reach, "spread": spread})


def _between(found: Judgement, errors: np.ndarray) -> Judgement:
    """``found`` with the interval that resampled ``errors`` give."""
    if not errors.size or not np.isfinite(errors).all():
        return found
    low, high = np.quantile(errors, [0.025, 0.975])
    return Judgement(**{**vars(found), "low": float(low), "high": float(high)})


@dataclass(frozen=True)
class _Apart:
    """How large differences and references are, samples by outputs, each output in units of its own.

    Both are to the ``powers`` of their outputs, so that they add up: squared 2-norms, and numbers of labels.
    """

    differences: np.ndarray
    references: np.ndarray
    powers: np.ndarray
    max_abs: float

    @classmethod
    def of(cls, pairs: Pairs) -> _Apart:
        names = list(pairs[0][0].expected) if pairs else []
        found = [[counted_distances(given[name], sample.expected[name]) for name in names] for sample, given in pairs]
        apart = np.array([[math.hypot(*(d.distance for d in one)) for one in row] for row in found], ndmin=2)
        sizes = np.array([[math.hypot(*(d.size for d in one)) for one in row] for row in found], ndmin=2)
        scale = np.where(sizes.max(axis=0, initial=0.0) > 0.0, sizes.max(axis=0, initial=0.0), 1.0)
        max_abs = max((d.max_abs for row in found for one in row for d in one), default=0.0)
        powers = np.array([1.0 if holds_labels(pairs[0][0].expected[name]) else 2.0 for name in names])
        return cls((apart / scale) ** powers, (sizes / scale) ** powers, powers, max_abs)

    def error(self) -> float:
        whole = self._relative(self.differences.sum(axis=0), self.references.sum(axis=0))
        return float(whole.max(initial=0.0))

    def resampled(self, rng: np.random.Generator) -> np.ndarray:
        """The error of each of many sets drawn from this one, with repetition."""
        count = len(self.differences)
        if not np.isfinite(self.differences).all():
            return np.zeros(0)
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=BOOTSTRAPS)
        errors = self._relative(drawn @ self.differences, drawn @ self.references)
        return np.asarray(errors.max(axis=-1, initial=0.0))

    def _relative(self, differences: np.ndarray, references: np.ndarray) -> np.ndarray:
        """Zero where there is no difference, infinite where there is one from a reference of zeros."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(differences == 0.0, 0.0, (differences / references) ** (1.0 / self.powers))


def _scores(pairs: Pairs, metric: Metric) -> tuple[float, float]:
    """What the session and the reference reach."""
    items = [sample.item for sample, _ in pairs]
    return metric([given for _, given in pairs], items), metric([sample.expected for sample, _ in pairs], items)


def _single_scores(pairs: Pairs, metric: Metric) -> np.ndarray | None:
    """The scores of each sample alone, session's and reference's; None where the metric takes no single sample."""
    try:
        return np.array([_scores([pair], metric) for pair in pairs])
    except InputError:
        return None


def _is_mean(singles: np.ndarray, found: Judgement) -> bool:
    whole = np.array([found.score, found.reference_score], dtype=float)
    return bool(np.allclose(singles.mean(axis=0), whole, rtol=1e-6, atol=1e-9))


def _resampled_drops(pairs: Pairs, metric: Metric, rng: np.random.Generator) -> np.ndarray:
    drops: list[float] = []
    began = time.monotonic()
    while len(drops) < METRIC_BOOTSTRAPS and time.monotonic() - began < METRIC_SECONDS:
        drawn = [pairs[index] for index in rng.integers(0, len(pairs), len(pairs))]
        try:
            score, own = _scores(drawn, metric)
        except InputError:
            continue  # a drawn set may lack what the metric needs, such as one of the classes
        drops.append(own - score)
    return np.array(drops if len(drops) >= METRIC_BOOTSTRAPS // 4 else [])
