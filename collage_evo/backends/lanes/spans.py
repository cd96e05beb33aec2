"""Parts of tensors along an axis, which portions of the work make and need; and the axes of the kinds of split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from collage_evo.graph.ir import Tensor

AXES: Mapping[str, int] = {"rows": 2, "channels": 1, "columns": -1, "positions": -2, "samples": 0}
"""Along which axis of its outputs a region is cut, by the kind of split; from the end if negative.

Attention by heads is ``columns``: before its output projection, each head stands in columns of its own.
"""


@dataclass(frozen=True)
class Span:
    """Elements ``start`` to ``stop`` of ``axis``, all of the other axes. Empty where they are equal."""

    axis: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def moved(self, axis: int) -> Span:
        """The same elements of another axis."""
        return replace(self, axis=axis)

    def of(self, tensor: Tensor) -> Tensor:
        """The type of this part of ``tensor``."""
        return replace(tensor, shape=(*tensor.shape[: self.axis], self.size, *tensor.shape[self.axis + 1 :]))

    def cut(self, array: np.ndarray) -> np.ndarray:
        """This part of ``array``."""
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


Need = Span | None
"""A part of a tensor; None for all of it."""


def proper(need: Need, tensor: Tensor) -> Need:
    """None where ``need`` is all of ``tensor``."""
    return None if need is None or need.size == tensor.shape[need.axis] else need


def joined(first: Need, second: Need) -> Need:
    """The smallest part that holds both: all of the tensor where they lie along different axes."""
    if first is None or second is None or first.axis != second.axis:
        return None
    if not first.size or not second.size:
        return second if second.size else first
    return Span(first.axis, min(first.start, second.start), max(first.stop, second.stop))


@dataclass(frozen=True)
class Work:
    """A node in one portion: what it needs of each of its inputs, and how it differs from the node itself.

    ``values`` stand for the constants at these positions of its inputs. ``makes`` is what comes out, where that is
    more than was asked for.
    """

    needs: tuple[Need, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[int, np.ndarray] = field(default_factory=dict)
    makes: Span | None = None
