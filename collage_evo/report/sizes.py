"""Latency of an open answer by the size of its inputs: what it is for, in words, and a table of frequent sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from collage_evo.graph.load.distribution import Distribution, elements
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.multimap import multimap
from collage_evo.report.console import new_table
from collage_evo.report.words import format_count, format_ms, format_ratio

ANSWER = "the answer"
ELEMENTS = "elements"
"""Size of inputs of which several dimensions vary."""
ROWS = 7
"""Sizes in the table, the smallest and the largest among them."""


@dataclass(frozen=True)
class SizeTimes:
    """Latency on inputs of one ``size``, ms, by the name of a library in words and :data:`ANSWER`; and how many
    ``samples`` have that size."""

    size: int
    samples: int
    ms: dict[str, float]

    @property
    def gain(self) -> float | None:
        """How many times as fast as the fastest library the answer is; None if one of them has no time."""
        others = [ms for name, ms in self.ms.items() if name != ANSWER]
        return min(others) / self.ms[ANSWER] if others and ANSWER in self.ms else None


@dataclass(frozen=True)
class LatencyBySize:
    """Times by size, smallest first. ``what``: the dimension that varies, or :data:`ELEMENTS` if several do."""

    what: str
    times: tuple[SizeTimes, ...]
    served: str = ""
    """What the answer is for: :func:`describe_open`."""
    left_out: tuple[str, ...] = ()
    """Sentences about placements that are not the answer, because a library is faster at one size."""

    @classmethod
    def of(
        cls,
        shapes: OpenShapes,
        distribution: Distribution,
        measured: Sequence[tuple[Mapping[str, Sequence[int]], Mapping[str, float]]],
        served: str = "",
    ) -> LatencyBySize:
        """From times ``measured`` on shapes, ms by name."""
        what, size = size_of(shapes)
        counts = multimap(zip(map(size, distribution.shapes), distribution.counts, strict=True))
        times = [SizeTimes(size(of), sum(counts.get(size(of), [])), dict(ms)) for of, ms in measured]
        return cls(what, tuple(sorted(times, key=lambda one: one.size)), served)

    @property
    def names(self) -> list[str]:
        """The answer, if it was timed, and the libraries, the fastest on the largest inputs first."""
        every = (name for one in reversed(self.times) for name in sorted(one.ms, key=one.ms.__getitem__))
        return sorted(dict.fromkeys(every), key=lambda name: name != ANSWER)

    def frequent(self, most: int = ROWS) -> tuple[SizeTimes, ...]:
        """The sizes that most samples have, the smallest and the largest, in their order; spread if all are alike."""
        inner = self.times[1:-1]
        spread = [inner[k * len(inner) // max(most - 2, 1)] for k in range(min(most - 2, len(inner)))]
        alike = len({one.samples for one in inner}) < 2
        chosen = spread if alike else sorted(inner, key=lambda one: -one.samples)[: most - 2]
        return tuple(one for one in self.times if one in (self.times[0], *chosen, self.times[-1]))


def size_of(shapes: OpenShapes) -> tuple[str, Callable[[Mapping[str, Sequence[int]]], int]]:
    """The name of the dimension that varies, or :data:`ELEMENTS` if several do, and its size in an input."""
    name, *others = shapes.varying or (ELEMENTS,)
    what = ELEMENTS if others else name

    def size(of: Mapping[str, Sequence[int]]) -> int:
        sizes = (pair for key, axes in shapes.inputs.items() for pair in zip(axes, of[key], strict=True))
        return int(elements(of)) if what == ELEMENTS else next(n for one, n in sizes if one.name == what)

    return what, size


def size_rows(sizes: LatencyBySize, most: int = ROWS) -> list[tuple[str, ...]]:
    """Cells of the frequent sizes, under: size, samples, ms of each of ``sizes.names``, the answer's gain."""
    return [
        (
            str(one.size),
            str(one.samples),
            *(format_ms(one.ms.get(name)) for name in sizes.names),
            "-" if one.gain is None else format_ratio(one.gain),
        )
        for one in sizes.frequent(most)
    ]


def sizes_table(sizes: LatencyBySize) -> Table:
    """The frequent sizes for a terminal; names of libraries are broken between words."""
    table = new_table(f"latency by {sizes.what}, ms", "size", "samples", *sizes.names, "gain")
    for column in table.columns:
        column.no_wrap, column.overflow = False, "fold"
    for row in size_rows(sizes):
        table.add_row(*row)
    return table


def describe_open(shapes: OpenShapes, distribution: Distribution, ranges: bool, drawn: bool) -> str:
    """What an open answer is for, and what its latency is the mean of.

    Args:
        shapes: the sizes that inputs may have.
        distribution: the shapes whose latency is expected.
        ranges: ``shapes`` are the user's; else they are those of the data, and others run too.
        drawn: ``distribution`` was drawn from ``shapes``.
    """
    axes = sorted(
        (one for several in shapes.inputs.values() for one in several if one.name), key=lambda one: not one.varies
    )
    asked = (
        f"any {one.name} from {one.low} to {one.high}" if one.varies else f"{one.name} {one.low}" for one in axes
    )
    served = ", ".join(dict.fromkeys(asked)) if ranges else "any size that the model takes"
    number = sum(distribution.counts)
    if drawn:
        return f"{served}; latency expected over {number} drawn shapes, each doubling equally often"
    places = ((key, axis, one) for key, sizes in shapes.inputs.items() for axis, one in enumerate(sizes) if one.name)
    found = multimap((one.name, of[key][axis]) for key, axis, one in places for of in distribution.shapes)
    spans = (f"{name} {min(sizes)} to {max(sizes)}" for name, sizes in found.items() if len(set(sizes)) > 1)
    return f"{served}; latency expected over the data: {', '.join([format_count(number, 'sample'), *spans])}"
