"""Check of a request's dtypes, shapes, and sizes of one name, against those that a program takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import Signature


class InputShapes:
    """The dtypes and shapes that ``program`` takes. Where one is open, sizes of one name in ``signature`` are equal.

    Each new shape is checked, so what does not depend on the request is found before.
    """

    def __init__(self, program: Program, signature: Signature) -> None:
        tensors = [program.tensors[name] for name in program.inputs]
        self._shared = [] if all(tensor.static for tensor in tensors) else signature.shared
        self._arrays = [
            (one, one.name, np.dtype(one.dtype), len(one.shape), [(k, n) for k, n in enumerate(one.shape) if n >= 0])
            for one in tensors
            if one.dtype != OPAQUE
        ]

    def require(self, feeds: Mapping[str, Any]) -> None:
        """
        Raises:
            InputError: an array of ``feeds`` is of another dtype or shape; or sizes of one name differ.
        """
        shapes = {}
        for tensor, name, dtype, rank, fixed in self._arrays:
            value = feeds[name]
            shape = shapes[name] = value.shape
            other_kind = value.dtype is not dtype or len(shape) != rank
            if other_kind or (fixed and [(k, n) for k, n in fixed if shape[k] != n]):
                require_fit(value, tensor)
        for name, (first, axis), *places in self._shared:
            for other, k in places:
                if (found := shapes[other][k]) != (size := shapes[first][axis]):
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
