"""Losses of contestants: the drop of the metric or the relative error, with its 95 % interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import precision_metrics

from collage_evo.graph.load.data import write_npz
from collage_evo.statistics import bootstrap_interval, net_share_interval
from contest.engines import Run, open_onnxruntime
from contest.task import Sample, Task, feeds_of, read_samples

Metric = Callable[[Sequence[object], Sequence[object]], float]
RESAMPLES = 1000


@dataclass(frozen=True)
class Loss:
    """Drop of the metric, or relative 2-norm error of the worst output, and its 95 % interval."""

    value: float
    low: float
    high: float


class Judge:
    """Runs contestants over one part of a task's data.

    Scores are an array by sample: the metric's value, or for each output the squared 2-norms of what it is off by and
    of what it should be, by ONNX Runtime in float32.
    """

    def __init__(self, task: Task, part: Path) -> None:
        self.task, self.samples = task, read_samples(part)
        self.inputs = task.inputs()
        self._metric: Metric | None = getattr(precision_metrics, task.metric) if task.metric else None
        self._right = self._references(part) if self._metric is None else []

    def scores(self, run: Run) -> np.ndarray:
        """Scores of ``run`` on all samples."""
        return np.array([self._score(run, index) for index in range(len(self.samples))])

    def _score(self, run: Run, index: int) -> float | list[tuple[float, float]]:
        sample = self.samples[index]
        made = run(feeds_of(sample, self.inputs))
        if self._metric is not None:
            return self._metric([made], [sample])
        return [_squares(made[name], right) for name, right in self._right[index].items()]

    def _references(self, part: Path) -> list[Sample]:
        """What ONNX Runtime gives, made once and kept beside the samples."""
        path = part.with_name(f"{part.stem}_reference.npz")
        if not path.exists():
            run = open_onnxruntime(self.task.model, 0)
            made = [run(feeds_of(sample, self.inputs)) for sample in self.samples]
            write_npz(path, {name: np.stack([one[name] for one in made]) for name in made[0]})
        return read_samples(path)


def judged(scores: np.ndarray, right: np.ndarray) -> Loss:
    """What is lost, with an interval: exact where each sample is right or wrong, else from drawing samples anew.

    Samples drawn anew from some of which none is judged otherwise would tell of no loss for certain.
    """
    if scores is right:
        return Loss(0.0, 0.0, 0.0)
    if scores.ndim == 1 and np.isin((scores, right), (0.0, 1.0)).all():
        low, high = net_share_interval(int((scores < right).sum()), int((scores > right).sum()), len(scores))
        return Loss(lost(scores, right), low, high)

    def losses(drawn: np.ndarray) -> np.ndarray:
        return np.array([lost(scores[indices], right[indices]) for indices in drawn])

    low, high = bootstrap_interval(losses, len(scores), resamples=RESAMPLES) or (np.nan, np.nan)
    return Loss(lost(scores, right), low, high)


def lost(scores: np.ndarray, right: np.ndarray) -> float:
    """How far ``scores`` are off, where those of float32 are ``right``; both of the same samples."""
    if scores.ndim == 1:
        return float(right.mean() - scores.mean())
    off, whole = np.moveaxis(scores.sum(axis=0), -1, 0)
    return float(np.sqrt(off / whole).max())


def keeps(value: float, budget: float) -> bool:
    """Whether a loss is within a budget, which a difference of two means may meet exactly but for rounding."""
    return value <= budget * (1.0 + 1e-9)


def _squares(made: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    exact = right.astype(np.float64)
    return float(((made - exact) ** 2).sum()), float((exact**2).sum())
