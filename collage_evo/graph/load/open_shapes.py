"""Shapes that the inputs of a run have where its answer is for many: a dimension for each axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shapes = dict[str, list[int]]
"""The shape of each input."""
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})(?:/(\d{1,18}))?")


@dataclass(frozen=True)
class Dimension:
    """Sizes of an axis: ``low``, every ``step`` further, up to ``high``, which is among them.

    ``name`` is empty where the model's file fixes the size.
    """

    low: int
    high: int
    name: str = ""
    step: int = 1

    @classmethod
    def read(cls, size: Any) -> Dimension:
        """A size, or a range such as ``1..512``, or ``32..640/32`` for multiples.

        Raises:
            ValueError: it is neither; the message says what to write.
        """
        found = _RANGE.fullmatch(size) if isinstance(size, str) else None
        if not found and (type(size) is not int or not 0 <= size < 10**18):
            raise ValueError(f"{size!r} is no size: write a number, or a range as 1..512")
        low, high, step = (int(part or 1) for part in found.groups()) if found else (size, size, 1)
        if found and not 1 <= low <= high:
            other = f"{high}..{low}" if 1 <= high < low else f"1..{max(high, 1)}"
            raise ValueError(f"{size} is no range: it begins with the smaller size, at least 1, as {other}")
        if step < 1 or (high - low) % step:
            raise ValueError(f"{size} does not end at a step of {step} from {low}: write it as 32..640/32")
        return cls(low, high, step=step)

    def at(self, size: float) -> int:
        """The nearest size below ``size``, or the end that is nearest to it."""
        return self.low + int(min(max(size, self.low), self.high) - self.low) // self.step * self.step

    @property
    def varies(self) -> bool:
        return self.low < self.high

    def __str__(self) -> str:
        ends = f"{self.low}..{self.high}" if self.varies else str(self.low)
        return ends if self.step == 1 else f"{ends}/{self.step}"


@dataclass(frozen=True)
class OpenShapes:
    """The shapes that the inputs of a run have, as the dimensions of each input.

    Axes whose dimensions have the same name have the same size. A dimension with a name may have any size in the
    model's file, also if the run knows only one.
    """

    inputs: dict[str, tuple[Dimension, ...]]

    @property
    def profiles(self) -> tuple[Shapes, ...]:
        """The only one, without sizes."""
        return ({},)

    @property
    def varying(self) -> dict[str, Dimension]:
        """Dimensions of several sizes, by name."""
        return {
            dimension.name: dimension
            for dimensions in self.inputs.values()
            for dimension in dimensions
            if dimension.varies
        }

    @property
    def sizes(self) -> dict[str, list[int | None]]:
        """The size of each axis of each input, None for one that varies."""
        return {
            name: [None if dimension.varies else dimension.low for dimension in several]
            for name, several in self.inputs.items()
        }

    @property
    def written(self) -> dict[str, list[int | str]]:
        """The size of each axis of each input, or its range."""
        return {
            name: [str(dimension) if dimension.varies else dimension.low for dimension in several]
            for name, several in self.inputs.items()
        }

    @property
    def smallest(self) -> Shapes:
        """All sizes at the lower end."""
        return self.shapes({})

    @property
    def largest(self) -> Shapes:
        """All sizes at the upper end."""
        return self.shapes({name: dimension.high for name, dimension in self.varying.items()})

    def shapes(self, sizes: Mapping[str, int]) -> Shapes:
        """Shapes with these ``sizes`` of dimensions, by name; others have their lowest."""
        return {
            name: [sizes.get(dimension.name, dimension.low) for dimension in dimensions]
            for name, dimensions in self.inputs.items()
        }

    def drawn(self, count: int, seed: int) -> tuple[Shapes, ...]:
        """``count`` shapes, for a range without data: the same for the same seed.

        The logarithm of a size is uniform. Lengths of real inputs differ by factors (they are about log-normal), so
        each doubling of a size gets as many samples; uniform sizes would make half of all inputs longer than half of
        the maximum, which no real data are. Sizes of a dimension are stratified (Latin hypercube: McKay, Beckman and
        Conover, Technometrics 21, 1979), so that few samples cover the range.
        """
        rng = np.random.default_rng(seed)
        sizes: dict[str, list[int]] = {}
        for name, dimension in self.varying.items():
            parts = (rng.permutation(count) + rng.uniform(size=count)) / count
            sizes[name] = list(
                map(dimension.at, dimension.low * ((dimension.high + dimension.step) / dimension.low) ** parts)
            )
        return tuple(self.shapes({name: drawn[k] for name, drawn in sizes.items()}) for k in range(count))

    def outside(self, shapes: Mapping[str, Sequence[int]]) -> str:
        """The first size of ``shapes`` that is outside of its range, in words; empty if there is none."""
        for name, dimensions in self.inputs.items():
            for dimension, size in zip(dimensions, shapes[name], strict=True):
                if dimension.at(size) != size:
                    return f"{name} {list(shapes[name])}, outside of {dimension.name or name}: {dimension}"
        return ""
