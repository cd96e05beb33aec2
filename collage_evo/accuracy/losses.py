"""Losses of samples, in terms that add up over samples, so that errors have intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from collage_evo.accuracy.samples import Sample
from collage_evo.graph.ir.values import Values
from collage_evo.graph.reference.distance import Distance, counted_distances, holds_labels
from collage_evo.graph.reference.noise import Noise
from collage_evo.statistics import Interval, bootstrap_interval, net_share_interval, share_interval

Pairs = Sequence[tuple[Sample, Values]]
"""Samples and a session's outputs for each."""


@dataclass(frozen=True)
class Losses:
    """Sizes of differences and references, samples by outputs, each output in units of its own.

    The error of an output over some samples is the sum of their differences over the sum of their references, to one
    over its power; that of several outputs is the largest.

    Attributes:
        differences: [samples, outputs]: the loss of each sample; below zero where it gains.
        references: [samples, outputs]: the largest possible loss.
        powers: [outputs]: 2 for squared 2-norms, 1 for counts.
        counted: [outputs]: whether differences are numbers of wrong decisions.
        gains: whether a sample can gain too.
        adds_up: whether the error of the set is that of the sums; some metrics have none but their own.
    """

    differences: np.ndarray
    references: np.ndarray
    powers: np.ndarray
    counted: np.ndarray
    gains: bool = False
    adds_up: bool = True

    def by_output(self) -> np.ndarray:
        """The error of each output over all samples."""
        return self._errors(self.differences.sum(axis=0), self.references.sum(axis=0))

    def together(self) -> float:
        """The error over all samples."""
        whole = self.by_output()
        return float(whole.max(initial=-math.inf)) if whole.size else 0.0

    def singles(self) -> np.ndarray:
        """The error of each sample, by its worst output."""
        errors = self._errors(self.differences, self.references)
        return np.asarray(errors.max(axis=1)) if errors.size else np.zeros(len(self.differences))

    def interval(self, seed: int = 0) -> Interval | None:
        """95 % interval of :meth:`together` over samples: exact if samples are right or wrong, else a bootstrap's.

        None for less than two samples, and for infinite errors.
        """
        count = len(self.differences)
        if count < 2 or not self.differences.size or not np.isfinite(self.differences).all():
            return None
        lost = self._decisions()
        if lost is not None:
            worse, better = int((lost > 0).sum()), int((lost < 0).sum())
            return net_share_interval(worse, better, count) if self.gains else share_interval(worse, count)
        if self.counted.all() and not self.differences.any():
            # Where no decision changed, one more sample might have: an interval of nothing would claim too much.
            return share_interval(0, count)

        def drawn_errors(drawn: np.ndarray) -> np.ndarray:
            errors = self._errors(self.differences[drawn].sum(axis=1), self.references[drawn].sum(axis=1))
            return np.asarray(errors.max(axis=-1))

        return bootstrap_interval(drawn_errors, count, seed)

    def changed(self) -> float | None:
        """Share of samples that are judged differently, if each is one decision; else None."""
        lost = self._decisions()
        return None if lost is None else float(np.count_nonzero(lost) / len(lost))

    def _decisions(self) -> np.ndarray | None:
        """-1, 0 or 1 for each sample, from the output that loses most; None if samples are not one decision each."""
        if not self.differences.size or not np.isfinite(self.differences).all():
            return None
        worst = int(self.by_output().argmax())
        lost, whole = self.differences[:, worst], self.references[:, worst]
        decides = self.counted[worst] and (whole == 1.0).all() and np.isin(lost, (-1.0, 0.0, 1.0)).all()
        return lost if decides else None

    def _errors(self, differences: np.ndarray, references: np.ndarray) -> np.ndarray:
        """Zero where there is no difference, infinite where there is one from a reference of zeros."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(differences == 0.0, 0.0, differences / references)
            return np.sign(ratios) * np.abs(ratios) ** (1.0 / self.powers)


def relative_losses(pairs: Pairs, excused: Mapping[str, Noise] = MappingProxyType({})) -> Losses:
    """For each output the squared 2-norms of difference and reference; for labels the number that differs, and of
    all.

    Each output is in units of its largest sample, so that squares of large numbers do not overflow. An output whose
    error is no more than it is ``excused`` loses nothing.
    """
    names = list(pairs[0][0].expected) if pairs else []
    labels = [holds_labels([sample.expected[name] for sample, _ in pairs]) for name in names]
    rows = [
        [
            _joined(counted_distances(outputs[name], sample.expected[name], counted))
            for name, counted in zip(names, labels, strict=True)
        ]
        for sample, outputs in pairs
    ]
    table = np.array(rows, dtype=float).reshape(len(pairs), len(names), 2)
    powers = np.where(labels, 1.0, 2.0)
    largest = table[..., 1].max(axis=0, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    whole = np.where(labels, 1.0, scale)
    losses = Losses(
        (table[..., 0] / whole) ** powers, (table[..., 1] / whole) ** powers, powers, np.array(labels, dtype=bool)
    )
    errors = zip(names, losses.by_output(), labels, strict=True)
    right = [excused.get(name, Noise()).explains(error, counted) for name, error, counted in errors]
    return replace(losses, differences=np.where(right, 0.0, losses.differences))


def _joined(parts: Sequence[Distance]) -> tuple[float, float]:
    """An output that consists of several arrays, concatenated."""
    return math.hypot(*(part.distance for part in parts)), math.hypot(*(part.size for part in parts))
