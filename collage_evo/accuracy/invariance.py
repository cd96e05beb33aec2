"""Batch invariance: how far the outputs of a row move when the row is in a batch, or beside padding.

Float32 moves by rounding only: a library may sum up in another order for another batch. A scale that is computed from
a whole tensor at run time lets each row depend on all others, and on what pads them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from collage_evo.accuracy.samples import Run, Sample
from collage_evo.errors import InputError
from collage_evo.graph.ir.values import Values
from collage_evo.graph.reference.distance import counted_distances
from collage_evo.multimap import multimap

ROWS, SECONDS = 8, 2.0
"""Rows that are measured, which is also the largest batch; after so many seconds, by themselves, only those so far,
two at least. In a batch and beside padding they take about three times as long again. Chosen."""
FACTOR, LEAST = 2.0, 1e-5
"""An invariant answer moves at most so many times as far as float32, or so far. Chosen."""
MIXED = 1e-2
"""If float32 moves further in a batch, the model itself mixes rows: its first axis is no batch. Chosen."""
UNRELATED = 1.0
"""The movement of an output that is missing, of another shape or not finite, and the largest of any."""


@dataclass(frozen=True)
class Movement:
    """Relative 2-norm of the difference of a row's outputs, by the output that moves furthest; for labels the share
    that differs. Over several rows the ``largest``, and the ``mean``."""

    largest: float
    mean: float


@dataclass(frozen=True)
class Invariance:
    """How far rows move in a ``batch``, and beside ``padding``; None where the model has no such thing, or too few
    samples show it."""

    batch: Movement | None = None
    padding: Movement | None = None

    @property
    def largest(self) -> float | None:
        """The larger of both movements; None if there is none."""
        return max((one.largest for one in (self.batch, self.padding) if one), default=None)

    def defined_by(self, float32: Invariance) -> Invariance:
        """The same without what the model in ``float32`` has not: it mixes the rows of a batch, or fails there."""
        has_batch = float32.batch is not None and float32.batch.largest <= MIXED
        has_padding = float32.padding is not None and float32.padding.largest < UNRELATED
        return Invariance(self.batch if has_batch else None, self.padding if has_padding else None)

    def holds(self, float32: Invariance) -> bool:
        """Whether rows move no further than in ``float32``, times :data:`FACTOR`, or than :data:`LEAST`."""
        pairs = ((self.batch, float32.batch), (self.padding, float32.padding))
        return all(one.largest <= max(LEAST, FACTOR * other.largest) for one, other in pairs if one and other)


def measure_invariance(
    run: Run,
    samples: Sequence[Sample],
    shapes: Mapping[str, Sequence[int]],
    clock: Callable[[], float] = time.monotonic,
) -> Invariance:
    """The invariance of ``run`` on up to :data:`ROWS` rows of ``samples``.

    The first axis is a batch if it is open in all inputs and they agree on its size. A mask is an input [batch,
    length] that is named so, with open length, if another input of whole numbers has its shape; rows are cut behind
    the last position that it keeps. Without a mask, if no two rows have one shape, all are cut to the least sizes.

    Each row runs alone; in a batch of rows of its shape, or with a mask in one of all rows, padded to the longest;
    and with a mask padded by itself, with zeros at the end up to the longest row, of which half is taken. Outputs
    are compared where those of the row alone are.

    Args:
        run: the model, for inputs of any sizes that ``shapes`` leave open.
        samples: with the outputs to compare.
        shapes: of the inputs, open sizes as -1.
        clock: seconds.
    """
    all_feeds = [sample.feeds for sample in samples]
    if not samples or not all(isinstance(value, np.ndarray) for feeds in all_feeds for value in feeds.values()):
        return Invariance()
    mask = _mask(all_feeds[0], shapes)
    has_batch = all(shape and shape[0] < 0 for shape in shapes.values()) and all(
        len({len(value) for value in feeds.values()}) == 1 for feeds in all_feeds
    )
    if not has_batch and not mask:
        return Invariance()
    rows = [row for feeds in all_feeds for row in (_split(feeds) if has_batch else [feeds])]
    long = [name for name, shape in shapes.items() if mask and len(shape) > 1 and shape[1] < 0]
    long = [name for name in long if all(feeds[name].shape[:2] == feeds[mask].shape for feeds in all_feeds)]
    if mask:
        rows = [_resized(row, long, int(np.nonzero(row[mask])[1].max()) + 1) for row in rows if row[mask].any()]
    often = Counter(map(_shapes_of, rows))
    rows = sorted(rows, key=lambda row: -often[_shapes_of(row)])[:ROWS]
    if not mask and max(often.values(), default=0) == 1:
        least = {name: np.min([row[name].shape for row in rows], axis=0) for name in shapes}
        rows = [{name: row[name][tuple(map(slice, least[name]))] for name in shapes} for row in rows]
    longest = max((row[mask].shape[1] for row in rows), default=0) if mask else 0
    names = [name for name, value in samples[0].expected.items() if isinstance(value, np.ndarray)]

    def outputs(feeds: Values) -> list[np.ndarray]:
        try:
            return list(map(np.atleast_1d, run(feeds, names)))
        except InputError:
            return []  # some models fix a size inside that their inputs leave open

    by_itself, began = list[list[np.ndarray]](), clock()
    for row in rows:
        if len(by_itself) < 2 or clock() - began < SECONDS:
            by_itself.append(outputs(row))
    rows = rows[: len(by_itself)]
    in_batch, in_padding = list[float](), list[float]()
    for group in multimap((mask or _shapes_of(row), index) for index, row in enumerate(rows)).values():
        if has_batch and len(group) > 1:
            batch = [_resized(rows[index], long, longest) for index in group]
            together = outputs({name: np.concatenate([row[name] for row in batch]) for name in batch[0]})
            in_batch += [_moved([one[at : at + 1] for one in together], by_itself[i]) for at, i in enumerate(group)]
    for row, own in zip(rows, by_itself, strict=True) if longest > 1 else ():
        whole = row[mask].shape[1] == longest
        short = _resized(row, long, longest // 2) if whole else row
        in_padding.append(_moved(outputs(_resized(short, long, longest)), outputs(short) if whole else own))
    return Invariance(*(Movement(max(found), fmean(found)) if found else None for found in (in_batch, in_padding)))


def _mask(feeds: Values, shapes: Mapping[str, Sequence[int]]) -> str:
    """The name of the mask; empty if there is none."""
    of_ids = {
        value.shape: name for name, value in feeds.items() if value.dtype.kind in "iu" and "mask" not in name.lower()
    }
    named = (name for name, shape in shapes.items() if "mask" in name.lower() and len(shape) == 2 and shape[1] < 0)
    return next((name for name in named if feeds[name].shape in of_ids), "")


def _split(feeds: Values) -> list[Values]:
    """The rows of a batch, as batches of one."""
    count = len(next(iter(feeds.values())))
    return [{name: value[at : at + 1] for name, value in feeds.items()} for at in range(count)]


def _resized(row: Values, long: Collection[str], length: int) -> Values:
    """``row`` with its ``long`` inputs, [batch, length, ...], cut to ``length`` or padded with zeros at the end."""
    resized = dict(row)
    for name in long:
        value = row[name][:, :length]
        resized[name] = np.pad(value, [(0, 0), (0, length - value.shape[1]), *[(0, 0)] * (value.ndim - 2)])
    return resized


def _shapes_of(row: Values) -> tuple[tuple[int, ...], ...]:
    return tuple(value.shape for value in row.values())


def _moved(outputs: Sequence[np.ndarray], own: Sequence[np.ndarray]) -> float:
    """The largest relative difference of ``outputs`` from a row's ``own``, where it has them."""
    if not own or len(outputs) != len(own):
        return UNRELATED
    both = zip(outputs, own, strict=True)
    cut = [(output[tuple(map(slice, one.shape[: output.ndim]))], one) for output, one in both]
    errors = [distance.error for pair in cut for distance in counted_distances(*pair, pair[1].dtype.kind in "biu")]
    return min(UNRELATED, max((error.relative for error in errors), default=0.0))
