"""Blocks of an answer for display: regions in the order in which they run, with repeats folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from collage_evo.report.result import Operator, RegionResult
from collage_evo.report.words import title

T = TypeVar("T")
LONGEST = 160
"""Most items in a stretch that is searched for behind itself."""
MOST = 120
"""Most chips of one region; a longer one, even after folding, shows counts of each kind instead."""


@dataclass(frozen=True)
class Folded(Generic[T]):
    """``items``, each a plain one or folded itself, ``times`` one after another."""

    items: tuple[T | Folded[T], ...]
    times: int = 1


def folded(items: Sequence[T], longest: int = LONGEST) -> tuple[T | Folded[T], ...]:
    """``items`` in order; of a stretch that directly follows itself only one copy stays, with the number of them.

    At each place it folds the stretch that saves most, the shortest of equals. Takes time in the order of
    ``len(items) * longest``.
    """
    parts: list[T | Folded[T]] = []
    start = 0
    while start < len(items):
        saved, size, times = _best(items, start, longest)
        later = (_best(items, start + k, longest)[0] for k in range(1, size)) if saved else ()
        if not saved or max(later, default=0) > saved:  # a longer stretch that begins here and there must not be cut
            parts.append(items[start])
            start += 1
            continue
        body = items[start : start + size]
        parts.append(Folded(folded(body, size // 2), times))
        start += size * times
    return tuple(parts)


def _best(items: Sequence[T], start: int, longest: int) -> tuple[int, int, int]:
    """Items that folding at ``start`` saves, the size of the stretch and its number of repeats."""
    best = (0, 0, 1)
    for size in range(1, min(longest, (len(items) - start) // 2) + 1):
        if items[start] != items[start + size]:
            continue
        times = 1
        while items[start : start + size] == items[start + size * times : start + size * (times + 1)]:
            times += 1
        if (saved := size * (times - 1)) > best[0]:
            best = (saved, size, times)
    return best


Chip = Operator | Folded[Operator]


@dataclass(frozen=True)
class Block:
    """A region: its engine, its share of the time (None: not known, or all), its operators, with repeats folded.

    ``counts`` replaces ``chips`` if those were too many: kind, arithmetic and number, the most frequent first.
    """

    library: str
    device: str
    share: float | None
    operators: int
    chips: tuple[Chip, ...]
    counts: tuple[tuple[str, str, int], ...] = ()
    lanes: int = 0
    rewritten: int = 0

    @property
    def alike(self) -> tuple[object, ...]:
        """Key that is equal for blocks that are drawn as one."""
        return (self.library, self.device, self.chips, self.counts, self.lanes)


@dataclass(frozen=True)
class Row:
    """Consecutive blocks, ``times`` over; ``first``: the number of the first region among all."""

    blocks: tuple[Block, ...]
    times: int
    first: int


def rows_of(regions: Sequence[RegionResult]) -> tuple[Row, ...]:
    """The regions as rows of blocks, in the order in which they run; repeated stretches are folded into one row."""
    spent = [region.measured_ms for region in regions]
    measured = [ms for ms in spent if ms is not None]
    whole = sum(measured) if len(measured) == len(regions) > 1 else 0.0
    shares = [ms / whole if whole and ms is not None else None for ms in spent]
    blocks = [_block(region, share) for region, share in zip(regions, shares, strict=True)]
    rows, at = [], 0
    for part in folded([block.alike for block in blocks]):
        size, times = (_written_out(part.items), part.times) if isinstance(part, Folded) else (1, 1)
        rows.append(Row(tuple(blocks[at : at + size]), times, at))
        at += size * times
    return tuple(rows)


def _written_out(items: Sequence[T | Folded[T]]) -> int:
    """Number of items without folding."""
    return sum(item.times * _written_out(item.items) if isinstance(item, Folded) else 1 for item in items)


def precisions_of(regions: Sequence[RegionResult]) -> list[str]:
    """The precisions, the most frequent first."""
    return [name for name, _ in Counter(one.arithmetic for r in regions for one in r.operators).most_common()]


def _block(region: RegionResult, share: float | None) -> Block:
    operators = region.operators
    chips: tuple[Chip, ...] = folded(operators)
    counts: tuple[tuple[str, str, int], ...] = ()
    if drawn(chips) > MOST:
        counted = Counter((one.kind, one.arithmetic) for one in operators).most_common()
        chips, counts = (), tuple((kind, computes, count) for (kind, computes), count in counted)
    rewritten = sum(len(one.nodes) for one in region.rewrites)
    return Block(
        title(region.backend), region.device, share, len(operators), chips, counts, len(region.lanes), rewritten
    )


def drawn(chips: Sequence[Chip]) -> int:
    """Operators that are drawn."""
    return sum(drawn(chip.items) if isinstance(chip, Folded) else 1 for chip in chips)
