"""Check of a request's dtypes, shapes, and sizes of one name, against those that a program takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import Signature


class InputShapes:
    """The dtypes and shapes that ``program`` takes. Where one is open, sizes of one name in ``signature`` are equal.

    A request's sizes are compared all at once, by :func:`operator.itemgetter`, because a loop over three inputs in
    Python takes longer than ONNX Runtime's own call. Only what does not fit is looked for input by input.
    """

    def __init__(self, program: Program, signature: Signature) -> None:
        tensors = [program.tensors[name] for name in program.inputs]
        self._tensors = [tensor for tensor in tensors if tensor.dtype != OPAQUE]
        self._shared = [] if all(tensor.static for tensor in tensors) else signature.shared
        self._dtypes = [np.dtype(tensor.dtype) for tensor in self._tensors]
        self._ranks = [len(tensor.shape) for tensor in self._tensors]
        sizes = [((tensor.name, axis), size) for tensor in self._tensors for axis, size in enumerate(tensor.shape)]
        fixed = {place: size for place, size in sizes if size >= 0}
        self._fixed = (0, *fixed.values())
        """Behind a request's sizes; the first is equal to itself, where there is nothing else to compare."""
        place_of = {place: index for index, (place, _) in enumerate(sizes)}
        pairs = [(place_of[place], index) for index, place in enumerate(fixed, len(sizes) + 1)]
        pairs += [(place_of[first], place_of[other]) for _, first, *others in self._shared for other in others]
        left, right = zip((len(sizes),) * 2, (len(sizes),) * 2, *pairs, strict=True)
        self._left, self._right = itemgetter(*left), itemgetter(*right)

    def require(self, feeds: Mapping[str, Any]) -> None:
        """
        Raises:
            InputError: an array of ``feeds`` is of another dtype or shape; or sizes of one name differ.
        """
        arrays = [feeds[tensor.name] for tensor in self._tensors]
        shapes = [array.shape for array in arrays]
        if [array.dtype for array in arrays] == self._dtypes and [*map(len, shapes)] == self._ranks:
            sizes = (*chain.from_iterable(shapes), *self._fixed)
            if self._left(sizes) == self._right(sizes):
                return
        for array, tensor in zip(arrays, self._tensors, strict=True):
            require_fit(array, tensor)
        for name, (first, axis), *others in self._shared:
            for other, k in others:
                if (found := feeds[other].shape[k]) != (size := feeds[first].shape[axis]):
                    raise InputError(f"'{name}' is {size} in input '{first}' and {found} in '{other}'")


def require_fit(value: Any, tensor: Tensor) -> None:
    """
    Raises:
        InputError: ``value`` is of another dtype or shape than the input ``tensor``.
    """
    of_type = np.dtype(value.dtype).newbyteorder("=") == tensor.dtype
    if not of_type or not _takes(tensor.shape, value.shape):
        raise InputError(f"input '{tensor.name}' is {written(value)}; this model takes {_open(tensor)}")


def written(value: Any) -> str:
    """An array's dtype and shape, as in ``float32[1, 3]``."""
    return f"{value.dtype}{list(value.shape)}"


def _takes(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether a tensor of ``shape``, in which -1 is any size, may have ``sizes``."""
    return len(shape) == len(sizes) and not [k for k, n in zip(shape, sizes, strict=True) if k != n and k >= 0]


def _open(tensor: Tensor) -> str:
    sizes = ", ".join("?" if size < 0 else str(size) for size in tensor.shape)
    return f"{tensor.dtype}[{sizes}]"
