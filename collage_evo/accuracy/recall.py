"""Recall of nearest neighbours: the share of those of each vector that an answer keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collage_evo.accuracy.losses import Losses, Pairs
from collage_evo.accuracy.metric import SummedMetric
from collage_evo.accuracy.outputs import comparable, holds_floats, is_embedding, is_vector, where
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError

TIE = 1e-6
"""Cosines that differ by no more are of neighbours that are as near: rounding of float32 may exchange them."""
LONGEST = 8192
"""Vectors that are longer may be sound: their recall is shown only if it is asked for. Chosen."""
MANY = 5
"""The recall is usually shown if there are so many times ``k`` vectors: among fewer most are neighbours. Chosen."""


@dataclass(frozen=True)
class Recall(SummedMetric):
    """Share of the ``k`` nearest neighbours of each vector, by cosine among all other vectors of the samples, that
    stay the same in the answer.

    An output takes part if it is one vector for each sample, [length] or [1, length], or a batch of them,
    [batch, length]; of several such outputs the one that loses most counts. A neighbour that is as near as the
    ``k``-th is as good (Aumueller et al., ANN-Benchmarks, Information Systems 87, 2020). The interval is over the
    vectors that are looked up, among the same neighbours.
    """

    name: str
    k: int

    @property
    def fewest(self) -> int:
        """How many vectors it needs: with one less, all would be neighbours."""
        return self.k + 2

    def reference(self, samples: Sequence[Sample]) -> float:
        self._outputs(samples)
        return 1.0

    def losses(self, pairs: Pairs) -> Losses:
        names = self._outputs([sample for sample, _ in pairs])
        columns = [
            self._lost([sample.expected[name] for sample, _ in pairs], [outputs[name] for _, outputs in pairs])
            for name in names
        ]
        table = np.array(columns).swapaxes(0, 1)
        return Losses(table[..., 0], table[..., 1], np.ones(len(names)), np.ones(len(names), dtype=bool))

    def score(self, error: float, reference: float | None) -> float | None:
        return 1.0 - error if np.isfinite(error) else None

    def is_usual(self, samples: Sequence[Sample]) -> bool:
        """Whether ``samples`` have embeddings, all of one length, and enough of them."""
        try:
            found = [samples[0].expected[name] for name in self._outputs(samples)]
        except InputError:
            return False
        return len(samples) >= MANY * self.k and any(is_embedding(one) and one.size <= LONGEST for one in found)

    def _outputs(self, samples: Sequence[Sample]) -> list[str]:
        """Names of the outputs that count.

        Raises:
            InputError: there are none, or too few samples.
        """
        found = where(samples, _holds_vectors)
        names = [name for name in found if len({sample.expected[name].shape[-1] for sample in samples}) == 1]
        if not names:
            raise InputError(
                f"accuracy.metric {self.name} needs an output of one vector for each sample, [length] or [batch, "
                "length]; the model gives none: let it pool its tokens, or write a function, as file.py:function"
            )
        count = min(sum(len(_rows(sample.expected[name])) for sample in samples) for name in names)
        if count < self.fewest:
            raise InputError(
                f"accuracy.metric {self.name} needs {self.fewest} samples or more in each part of the data, and one "
                f"has {count}: give more with --data, or take a smaller number than {self.k}"
            )
        return names

    def _lost(self, expected: Sequence[np.ndarray], outputs: Sequence[Any]) -> list[tuple[float, float]]:
        """For each sample the number of neighbours that changed, and of all: k for each of its vectors."""
        both = zip(outputs, expected, strict=True)
        wrong = [not comparable(output, one) or not np.isfinite(one).all() for output, one in both]
        rows = list(map(_rows, expected))
        if any(wrong):
            return [(np.inf if broken else 0.0, 1.0) for broken in wrong]
        theirs = [_rows(output) for output in outputs]
        ends = np.cumsum([len(own) for own in rows])
        everything, everything_theirs = np.concatenate(rows), np.concatenate(theirs)
        lost = []
        for own, own_theirs, end in zip(rows, theirs, ends, strict=True):
            itself = np.arange(len(own)), np.arange(end - len(own), end)
            cosines, cosines_theirs = own @ everything.T, own_theirs @ everything_theirs.T
            cosines[itself] = cosines_theirs[itself] = -np.inf
            nearest = np.argpartition(cosines_theirs, -self.k, axis=1)[:, -self.k :]
            least = np.partition(cosines, -self.k, axis=1)[:, [-self.k]]
            changed = np.take_along_axis(cosines, nearest, axis=1) < least - TIE
            lost.append((float(changed.sum()), float(changed.size)))
        return lost


def _holds_vectors(array: np.ndarray) -> bool:
    return holds_floats(array) and array.shape[-1] > 1 and (array.ndim <= 2 or is_vector(array))


def _rows(array: Any) -> np.ndarray:
    """The vectors of an output, [vectors, length], of length 1; zeros stay zeros."""
    rows = np.asarray(array, dtype=np.float64).reshape(-1, np.shape(array)[-1])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0))
