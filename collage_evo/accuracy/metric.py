"""Metrics: their interface, the relative error, and a user's own function in a file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.accuracy.losses import Losses, Pairs, relative_losses
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError, named_line
from collage_evo.graph.ir.values import Values
from collage_evo.graph.load.functions import load_function
from collage_evo.graph.reference.noise import Noise

Function = Callable[[Sequence[Values], Sequence[Values]], float]
"""Maps the outputs of each sample, and each sample's inputs and labels, to a score; higher is better."""


@dataclass(frozen=True)
class Scores:
    """Result of a metric for a set of samples.

    ``error``: bounded by the budget; for a score it is its drop. ``score`` and ``reference``: of the session and of
    the model itself; None if the metric has none.
    """

    error: float
    score: float | None = None
    reference: float | None = None


class Metric(ABC):
    """Error measure chosen by the user. Methods raise InputError for outputs or labels that it cannot take."""

    name: str

    @abstractmethod
    def reference(self, samples: Sequence[Sample]) -> float | None:
        """The model's own score on ``samples``, which have its outputs; None if there is no such score."""

    @abstractmethod
    def scores(self, pairs: Pairs, reference: float | None = None) -> Scores:
        """Scores over all samples together; ``reference`` is the result of :meth:`reference` for them, if that is
        known."""

    @abstractmethod
    def by_sample(self, pairs: Pairs) -> tuple[Scores, Losses | None]:
        """The same, and the loss of each sample; None if the metric accepts no single sample."""


class SummedMetric(Metric):
    """A metric whose error comes from terms that add up over samples."""

    @abstractmethod
    def losses(self, pairs: Pairs) -> Losses:
        """The loss of each sample."""

    @abstractmethod
    def score(self, error: float, reference: float | None) -> float | None:
        """The score of a session with this ``error``."""

    def scores(self, pairs: Pairs, reference: float | None = None) -> Scores:
        return self.by_sample(pairs)[0]

    def by_sample(self, pairs: Pairs) -> tuple[Scores, Losses]:
        losses, reference = self.losses(pairs), self.reference([sample for sample, _ in pairs])
        error = losses.together()
        return Scores(error, self.score(error, reference), reference), losses


class RelativeError(SummedMetric):
    """The 2-norm of the difference over that of the reference; of labels the share that differs.

    Args:
        excused: by output, what counts as no error, because rounding explains it.
    """

    name = ""

    def __init__(self, excused: Mapping[str, Noise] | None = None) -> None:
        self._excused = excused or {}

    def reference(self, samples: Sequence[Sample]) -> float | None:
        return None

    def losses(self, pairs: Pairs) -> Losses:
        return relative_losses(pairs, self._excused)

    def score(self, error: float, reference: float | None) -> float | None:
        return None


class FunctionMetric(Metric):
    """The function that ``file.py:function`` names; its exceptions become errors of one line.

    Raises:
        InputError: see :func:`collage_evo.graph.load.functions.load_function`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Function = load_function(name)

    def reference(self, samples: Sequence[Sample]) -> float:
        return self._called([sample.expected for sample in samples], samples)

    def scores(self, pairs: Pairs, reference: float | None = None) -> Scores:
        samples = [sample for sample, _ in pairs]
        score = self._called([outputs for _, outputs in pairs], samples)
        of_reference = self.reference(samples) if reference is None else reference
        return Scores(_drop(of_reference, score), score, of_reference)

    def by_sample(self, pairs: Pairs) -> tuple[Scores, Losses | None]:
        whole = self.scores(pairs)
        try:
            by_pair = [self.scores([pair]) for pair in pairs]
        except InputError:
            return whole, None  # the function may need many samples, or one of each class
        table = np.array([(one.reference, one.score) for one in by_pair], dtype=float).reshape(-1, 2)
        both = np.array([whole.reference, whole.score], dtype=float)
        is_mean = bool(np.allclose(table.mean(axis=0), both, rtol=1e-6, atol=1e-9))
        counted = bool(np.isin(table, (0.0, 1.0)).all())
        lost = np.array([one.error for one in by_pair]).reshape(-1, 1)
        losses = Losses(lost, np.ones_like(lost), np.ones(1), np.array([counted]), gains=True, adds_up=is_mean)
        return whole, losses

    def _called(self, outputs: Sequence[Values], samples: Sequence[Sample]) -> float:
        try:
            returned = self._function(list(outputs), [sample.item for sample in samples])
            score = float(np.asarray(returned).item())  # a batch of one returns an array
        except (Exception, SystemExit) as error:
            problem = f"raised {named_line(error)}"
            raise InputError(f"accuracy.metric {self.name} {problem}") from error
        if not math.isfinite(score):
            raise InputError(f"accuracy.metric {self.name} gave {score}: it has to give a finite number")
        return score


def _drop(reference: float, score: float) -> float:
    """The drop from the reference to ``score``, without the rounding error of subtracting two means: 0.89 and 0.88 of
    100 samples are 0.01 and 9e-18 apart in floats, which a budget of 0.01 would not allow."""
    return float(f"{reference - score:.9g}")
