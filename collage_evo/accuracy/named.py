"""Metrics by name: the outputs that each accepts, the loss of a sample, and the outputs for which it is usual.

All but ``top1`` and ``top5`` compare with the model's own outputs in float32, and need no labels. Some take a number
behind an @: the neighbours of ``recall@10``, and the axis of classes in ``text@1`` and ``exact_match@1``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collage_evo.accuracy.losses import Losses, Pairs
from collage_evo.accuracy.metric import SummedMetric
from collage_evo.accuracy.outputs import (
    class_axis,
    comparable,
    decides,
    has_classes,
    holds_floats,
    is_embedding,
    is_image,
    is_text,
    is_usually_text,
    usually_decides,
    where,
)
from collage_evo.accuracy.recall import Recall
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError

LABELS = "agreement"
"""The metric whose error is the share of labels that change."""
EMBEDDINGS = re.compile("embed|pool|hidden|feature")
"""In the name of an output whose numbers are no scores of classes: by their shape alone they could be."""
WRONG = (math.inf, 1.0)
"""Loss of an output of another shape, or one that is not finite where it should be."""


@dataclass(frozen=True)
class Compared(SummedMetric):
    """A metric that compares outputs with the model's own.

    Attributes:
        name: as the user writes it.
        needs: the kind of output it needs, in words.
        takes: whether it can compare such an output; if it can compare several, the one that loses most counts.
        usual: whether it is the usual metric for such an output.
        terms: maps an output and its expected value to the loss, and the largest possible loss.
        power, counts: as ``powers`` and ``counted`` of :class:`Losses`.
        reached: the score for a loss.
        best: the score without any loss; None if that is infinite.
    """

    name: str
    needs: str
    takes: Callable[[np.ndarray], bool]
    usual: Callable[[np.ndarray], bool]
    terms: Callable[[Any, Any], tuple[float, float]]
    power: int = 1
    counts: bool = False
    reached: Callable[[float], float | None] = lambda error: 1.0 - error
    best: float | None = 1.0

    def reference(self, samples: Sequence[Sample]) -> float | None:
        self._outputs(samples)
        return self.best

    def losses(self, pairs: Pairs) -> Losses:
        samples = [sample for sample, _ in pairs]
        names = self._outputs(samples)
        rows = [[self.terms(outputs[name], sample.expected[name]) for name in names] for sample, outputs in pairs]
        table = np.array(rows, dtype=float).reshape(len(pairs), len(names), 2)
        powers, counted = np.full(len(names), float(self.power)), np.full(len(names), self.counts)
        return Losses(table[..., 0], table[..., 1], powers, counted)

    def score(self, error: float, reference: float | None) -> float | None:
        return self.reached(error) if math.isfinite(error) else None

    def is_usual(self, samples: Sequence[Sample]) -> bool:
        """Whether it is the usual metric for some output of ``samples``."""
        names = where(samples, lambda array: self.takes(array) and self.usual(array))
        return any(self.name != LABELS or not EMBEDDINGS.search(name.lower()) for name in names)

    def _outputs(self, samples: Sequence[Sample]) -> list[str]:
        if not (names := where(samples, self.takes)):
            raise InputError(f"accuracy.metric {self.name} needs {self.needs}; the model gives none")
        return names


@dataclass(frozen=True)
class TopK(SummedMetric):
    """Share of samples whose label is among the ``k`` largest scores."""

    name: str
    k: int

    def reference(self, samples: Sequence[Sample]) -> float:
        output, label = self._output(samples), self._label(samples)
        return float(
            np.mean([self._right(sample.expected[output], sample.labels[label]).mean() for sample in samples])
        )

    def losses(self, pairs: Pairs) -> Losses:
        samples = [sample for sample, _ in pairs]
        output, label = self._output(samples), self._label(samples)
        rows = []
        for sample, outputs in pairs:
            if np.shape(outputs[output]) != np.shape(sample.expected[output]):
                rows.append(WRONG)
                continue
            truth = sample.labels[label]
            of_reference, right = self._right(sample.expected[output], truth), self._right(outputs[output], truth)
            rows.append((float(of_reference.sum() - right.sum()), float(len(of_reference))))
        table = np.array(rows)
        return Losses(table[:, :1], table[:, 1:], np.ones(1), np.ones(1, dtype=bool), gains=True)

    def score(self, error: float, reference: float | None) -> float | None:
        return None if reference is None or not math.isfinite(error) else reference - error

    def is_usual(self, samples: Sequence[Sample]) -> bool:
        """Whether there are scores, labels that are classes of these, and enough of them for ``k`` to be meaningful.

        A user's own metric may have labels of another kind.
        """
        try:
            self.reference(samples)
        except InputError:
            return False
        return bool(samples[0].expected[self._output(samples)].shape[-1] > self.k)

    def _output(self, samples: Sequence[Sample]) -> str:
        names = where(samples, lambda array: has_classes(array) and array.ndim <= 2)
        if len(names) != 1:
            raise InputError(
                f"accuracy.metric {self.name} needs one output of scores, [classes] or [batch, classes]; the model "
                f"has {len(names)}: write a function instead, as file.py:function"
            )
        return names[0]

    def _label(self, samples: Sequence[Sample]) -> str:
        first = samples[0].labels if samples else {}
        names = [name for name, value in first.items() if np.asarray(value).dtype.kind in "iu"]
        if len(names) != 1:
            raise InputError(
                f"accuracy.metric {self.name} needs labels: one array of whole numbers in the data that is no input; "
                f"there are {len(names)}"
            )
        return names[0]

    def _right(self, scores: Any, label: Any) -> np.ndarray:
        """For each row of scores, whether fewer than ``k`` are larger than the label's."""
        rows, labels = np.asarray(scores).reshape(-1, np.shape(scores)[-1]), np.asarray(label).reshape(-1)
        classes = rows.shape[1]
        if len(labels) != len(rows) or not ((labels >= 0) & (labels < classes)).all():
            raise InputError(
                f"accuracy.metric {self.name}: a label has to be a class from 0 to {classes - 1} for each of the "
                f"{len(rows)} rows of scores; there are {labels.tolist()[:8]}"
            )
        of_label = rows[np.arange(len(rows)), labels]
        larger = (rows > of_label[:, None]).sum(axis=1)
        return np.asarray((larger < self.k) & np.isfinite(of_label))


def named(text: str) -> Compared | TopK | Recall | None:
    """The metric of that name, and of the number behind it; None if there is none."""
    kind, _, written = text.partition("@")
    number = int(written) if re.fullmatch(r"[0-9]{1,4}", written) else None
    if kind == "recall" and number:
        return Recall(text, number)
    if kind in SEQUENCES and number is not None:
        return replace(_of_sequences(kind, number), name=text)
    return NAMED.get(text)


def usual_metrics(samples: Sequence[Sample]) -> list[SummedMetric]:
    """The usual metrics for such outputs and labels."""
    return [metric for metric in NAMED.values() if samples and metric.is_usual(samples)]


def _decisions_lost(output: Any, expected: np.ndarray) -> tuple[float, float]:
    if not comparable(output, expected):
        return WRONG
    if expected.dtype.kind in "biu":
        return float(np.count_nonzero(output != expected)), float(expected.size)
    axis = class_axis(expected)
    decided, right = np.argmax(output, axis), np.argmax(expected, axis)
    return float(np.count_nonzero(decided != right)), float(right.size)


def _angle_lost(output: Any, expected: np.ndarray) -> tuple[float, float]:
    """1 less the cosine of each row, summed."""
    if not comparable(output, expected) or not np.isfinite(expected).all():
        return WRONG
    shape = (-1, expected.shape[-1]) if expected.ndim <= 3 else (1, -1)
    a, e = (np.asarray(array, dtype=np.float64).reshape(shape) for array in (output, expected))
    lengths = np.linalg.norm(a, axis=1), np.linalg.norm(e, axis=1)
    safe = [np.where(length > 0.0, length, 1.0)[:, None] for length in lengths]
    unit_a, unit_e = a / safe[0], e / safe[1]
    # Half the squared chord is 1 less the cosine, without the rounding of a difference from 1.
    lost = 0.5 * ((unit_a - unit_e) ** 2).sum(axis=1)
    return float(np.where((lengths[0] > 0.0) == (lengths[1] > 0.0), lost, 1.0).sum()), float(len(e))


def _noise(output: Any, expected: np.ndarray) -> tuple[float, float]:
    """Mean squared difference of pixels, of the squared range that the image has: 255 in bytes."""
    if not comparable(output, expected) or not np.isfinite(expected).all():
        return WRONG
    a, e = np.asarray(output, dtype=np.float64), expected.astype(np.float64)
    peak = 255.0 if expected.dtype == np.uint8 else float(e.max() - e.min())
    mean = float(np.mean((a - e) ** 2))
    return (mean / peak**2 if peak else math.inf) if mean else 0.0, 1.0


def _sequences_lost(
    output: Any, expected: np.ndarray, read: Callable[[np.ndarray, int], np.ndarray], axis: int
) -> tuple[float, float]:
    """The number of sequences that differ once ``read``, and of all. A batch of so many rows of steps holds as many;
    ``axis``: of the classes."""
    if expected.dtype.kind in "iu":
        return float(not np.array_equal(output, expected)), 1.0
    if not comparable(output, expected):
        return WRONG
    classes = expected.shape[axis]
    decided, right = (np.argmax(array, axis) for array in (np.asarray(output), expected))
    batch = len(right) if right.ndim == 2 and right.shape[1] > 1 else 1
    decided, right = decided.reshape(batch, -1), right.reshape(batch, -1)
    blank = max((0, classes - 1), key=lambda code: int(np.count_nonzero(right == code)))
    both = ((read(one, blank), read(other, blank)) for one, other in zip(decided, right, strict=True))
    return float(sum(not np.array_equal(one, other) for one, other in both)), float(batch)


def _decoded(codes: np.ndarray, blank: int) -> np.ndarray:
    """The best class of each step, repeated ones once, without the blank (Graves et al., ICML 2006: best path)."""
    changes = np.concatenate([[True], codes[1:] != codes[:-1]])
    return np.asarray(codes[changes & (codes != blank)])


def _as_it_is(codes: np.ndarray, blank: int) -> np.ndarray:
    return codes


SEQUENCES = {"text": _decoded, "exact_match": _as_it_is}
"""Metrics of whole sequences: how each reads the best class of each step."""


def _of_sequences(name: str, axis: int = -1) -> Compared:
    """The share of sequences that stay as they are, if classes lie along ``axis``."""
    read = SEQUENCES[name]
    where_classes_are = (
        "[batch, steps, classes]" if axis < 0 else f"of two or three axes, with classes along axis {axis}"
    )
    return Compared(
        name,
        f"an output of scores, {where_classes_are}",
        takes=lambda array: is_text(array, axis),
        usual=is_usually_text if read is _decoded else lambda array: False,
        terms=lambda output, expected: _sequences_lost(output, expected, read, axis),
        counts=True,
    )


def _decibels(error: float) -> float | None:
    return -20.0 * math.log10(error) if error > 0.0 else None


NAMED: Mapping[str, Compared | TopK | Recall] = {
    metric.name: metric
    for metric in (
        Compared(
            LABELS,
            "an output of scores or of whole numbers",
            takes=decides,
            usual=usually_decides,
            terms=_decisions_lost,
            counts=True,
        ),
        Compared("cosine", "an output of floats", takes=holds_floats, usual=is_embedding, terms=_angle_lost),
        Compared(
            "psnr",
            "an output of numbers",
            takes=lambda array: array.dtype.kind in "uf",
            usual=is_image,
            terms=_noise,
            power=2,
            reached=_decibels,
            best=None,
        ),
        _of_sequences("text"),
        _of_sequences("exact_match"),
        Recall("recall@10", 10),
        TopK("top1", 1),
        TopK("top5", 5),
    )
}
"""Named metrics, by name."""
