"""Arrays that hold many samples, split into one set of arrays a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collage_evo.errors import InputError

Arrays = Mapping[str, np.ndarray]
Dims = Sequence[int | None]
"""Sizes of an input's dimensions, None for one that takes any; None for an input of unknown rank."""


def samples_of(
    arrays: Arrays, inputs: Mapping[str, Dims | None], where: str, by_row: bool = False
) -> list[dict[str, np.ndarray]]:
    """One mapping for each sample in ``arrays``; a single one where they fit the inputs as they are.

    An input's array holds many samples where it has one more dimension in front than the input, or where its leading
    size is a multiple of the input's. Every sample gets the arrays that fit as they are. Arrays that are no inputs,
    such as labels, are split as the inputs are. Arrays that fit in no way come back unchanged for the caller's check.

    Args:
        by_row: each row is a sample where inputs leave their leading size open and have equally many rows.

    Raises:
        InputError: the arrays hold different numbers of samples; ``where`` names their source.
    """
    if by_row:
        inputs = _single(inputs, arrays)
    cuts = {name: _Cut.of(arrays[name], dims) for name, dims in inputs.items() if name in arrays and dims is not None}
    many = {name: cut for name, cut in cuts.items() if cut is not None}
    if not many:
        return [dict(arrays)]
    # How a batch is split shows the layout of labels better than an array with a dimension in front.
    name, like = max(many.items(), key=lambda item: item[1].size)
    for other, cut in many.items():
        if cut.count != like.count:
            raise InputError(f"{where} has {like.count} samples of {name!r} and {cut.count} of {other!r}")
    for other in arrays.keys() - inputs.keys():
        count = len(arrays[other]) if arrays[other].ndim else 1
        if count != like.length:
            raise InputError(f"{where} has {count} of {other!r}, which is no input, for {like.length} of {name!r}")
        many[other] = like
    return [
        {key: many[key].part(array, index) if key in many else array for key, array in arrays.items()}
        for index in range(like.count)
    ]


def _single(inputs: Mapping[str, Dims | None], arrays: Arrays) -> Mapping[str, Dims | None]:
    """``inputs`` with a batch of 1 where it is open; unchanged where no rows of one batch are seen.

    They are seen where each array has as many, and no input has anything else in front, as the states of an RNN and
    the edges of a graph have. A vector of open length is one sample: a waveform.
    """
    given = {name: dims for name, dims in inputs.items() if name in arrays}
    opened = {
        name: dims
        for name, dims in given.items()
        if dims and dims[0] is None and arrays[name].ndim == len(dims) > 1
    }
    others = [list(dims[:1]) if dims is not None else None for name, dims in given.items() if name not in opened]
    if len({len(arrays[name]) for name in opened}) != 1 or any(front not in ([], [1]) for front in others):
        return inputs
    return {**inputs, **{name: [1, *dims[1:]] for name, dims in opened.items()}}


class _Cut:
    """How an array is split along its leading dimension: by ``size``, 0 where a part lacks that dimension."""

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size = length, size
        self.count = length // size if size else length

    @classmethod
    def of(cls, array: np.ndarray, dims: Dims) -> _Cut | None:
        """None where ``array`` fits ``dims`` as it is, or in no way."""
        if array.ndim == len(dims) + 1 and _fits(array.shape[1:], dims):
            return cls(array.shape[0], 0)
        if array.ndim != len(dims) or not dims or not dims[0] or not _fits(array.shape[1:], dims[1:]):
            return None
        length = array.shape[0]
        return cls(length, dims[0]) if length > dims[0] and length % dims[0] == 0 else None

    def part(self, array: np.ndarray, index: int) -> np.ndarray:
        return np.asarray(array[index * self.size : (index + 1) * self.size] if self.size else array[index])


def _fits(shape: Sequence[int], dims: Dims) -> bool:
    return len(shape) == len(dims) and all(dim in (None, size) for dim, size in zip(dims, shape, strict=True))
