"""Samples of a model's inputs with labels and reference outputs: split by a seed, saved as files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from collage_evo.files import reading
from collage_evo.graph.ir.values import Values, plain, read_values, save_values

Run = Callable[[Values, Sequence[str]], Sequence[Any]]
"""Maps inputs and names of outputs to these outputs, plain (``graph/ir/values.py``)."""
SHARED = 3
"""Up to so many samples are not split."""
T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """One sample: inputs, additional data (labels), and the outputs of a reference, if it ran."""

    feeds: Values
    labels: Values = field(default_factory=dict)
    expected: Values = field(default_factory=dict)

    @property
    def item(self) -> Values:
        """Inputs and labels together, as a user's metric receives them."""
        return {**self.feeds, **self.labels}


@dataclass(frozen=True)
class Sizes:
    """The most samples of each part."""

    calibration: int
    search: int
    held_out: int


@dataclass(frozen=True)
class Split(Generic[T]):
    """Samples for int8 ranges, for the search, and for the held-out test: no two parts share one, or all are the
    same.

    ``total`` is the number of all samples.
    """

    calibration: tuple[T, ...]
    search: tuple[T, ...]
    held_out: tuple[T, ...]
    total: int

    @property
    def every(self) -> tuple[T, ...]:
        """The samples of all parts."""
        return (*self.search, *self.calibration, *self.held_out)


def split(samples: Sequence[T], sizes: Sizes, seed: int) -> Split[T]:
    """Divide ``samples``: a quarter for the search (of few a third), the rest in equal parts, none above its size.

    The same for the same number of samples and seed. Up to ``SHARED`` samples are all of the parts.
    """
    if len(samples) <= SHARED:
        everything = tuple(samples)
        return Split(everything, everything, everything, len(samples))
    order = np.random.default_rng(seed).permutation(len(samples))
    search, held_out, calibration = _parts(len(samples), sizes)
    ends = (search, search + held_out, search + held_out + calibration)
    parts = [tuple(samples[i] for i in sorted(order[a:b])) for a, b in zip((0, *ends), ends, strict=False)]
    return Split(calibration=parts[2], search=parts[0], held_out=parts[1], total=len(samples))


def _parts(total: int, sizes: Sizes) -> tuple[int, int, int]:
    search = min(sizes.search, max(min(total // 3, 4), total // 4))
    rest = total - search
    held_out = min(sizes.held_out, rest - rest // 2)
    return search, held_out, min(sizes.calibration, rest - held_out)


def how_to_hold_out(needed: int, sizes: Sizes, given: int) -> str:
    """What to do for so many held-out samples, where so many are ``given`` in all."""
    enough = replace(sizes, held_out=max(needed, sizes.held_out))
    totals = range(SHARED + 1, 4 * (needed + SHARED))
    total = totals[bisect_left(totals, needed, key=lambda n: _parts(n, enough)[1])]
    steps = [f"give {total} in all"] if total > given else []
    return " and ".join([*steps, f"set -s accuracy.held_out={needed}"] if needed > sizes.held_out else steps)


def write_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write ``samples`` into one file atomically."""
    groups: dict[str, Values] = {"count": {"samples": np.array(len(samples))}}
    for index, sample in enumerate(samples):
        groups |= {f"in{index}": sample.feeds, f"label{index}": sample.labels, f"out{index}": sample.expected}
    work = path.with_suffix(".tmp")
    save_values(work, groups)
    work.replace(path)


def read_samples(path: Path) -> tuple[Sample, ...]:
    """Read the file of :func:`write_samples`.

    Raises:
        DamagedFile: its content is something else.
    """
    with reading(path, "delete it and samples.json beside it, and the samples are taken again"):
        groups = read_values(path)
        kinds = ("in", "label", "out")
        count = int(groups["count"]["samples"])
        return tuple(Sample(*(groups.get(f"{kind}{index}", {}) for kind in kinds)) for index in range(count))


def plain_outputs(names: Sequence[str], outputs: Sequence[Any]) -> Values:
    """Outputs by name, in the form of a sample."""
    return dict(zip(names, map(plain, outputs), strict=True))
