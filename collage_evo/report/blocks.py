"""Blocks of an answer for display: regions in the order in which they run, with repeats folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collage_evo.report.folding import Folded, folded
from collage_evo.report.result import Operator, RegionResult
from collage_evo.report.words import arithmetic, title

MOST = 120
"""Most chips of one region; a longer one, even after folding, shows counts of each kind instead."""

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
    known = [ms for ms in spent if ms is not None]
    whole = sum(known) if len(known) == len(regions) > 1 else 0.0
    shares = [ms / whole if whole and ms is not None else None for ms in spent]
    blocks = [_block(region, share) for region, share in zip(regions, shares, strict=True)]
    kinds: dict[tuple[object, ...], int] = {}
    numbers = [kinds.setdefault(block.alike, len(kinds)) for block in blocks]
    rows, at = [], 0
    for part in folded(numbers):
        size = len(list(_flat(part.items))) if isinstance(part, Folded) else 1
        times = part.times if isinstance(part, Folded) else 1
        rows.append(Row(tuple(blocks[at : at + size]), times, at))
        at += size * times
    return tuple(rows)


def _flat(items: Sequence[int | Folded[int]]) -> Iterator[int]:
    for item in items:
        if isinstance(item, Folded):
            yield from [*_flat(item.items)] * item.times
        else:
            yield item


def precisions_of(regions: Sequence[RegionResult]) -> list[str]:
    """The precisions, the most frequent first."""
    return [name for name, _ in Counter(one.arithmetic for r in regions for one in _operators(r)).most_common()]


def _block(region: RegionResult, share: float | None) -> Block:
    operators = _operators(region)
    chips: tuple[Chip, ...] = folded(operators)
    counts: tuple[tuple[str, str, int], ...] = ()
    if drawn(chips) > MOST:
        found = Counter((one.kind, one.arithmetic) for one in operators).most_common()
        chips, counts = (), tuple((kind, computes, count) for (kind, computes), count in found)
    rewritten = sum(len(one.nodes) for one in region.rewrites)
    given = (region.device, share, len(operators), chips, counts, len(region.lanes), rewritten)
    return Block(title(region.backend), *given)


def drawn(chips: Sequence[Chip]) -> int:
    """Operators that are drawn."""
    return sum(drawn(chip.items) if isinstance(chip, Folded) else 1 for chip in chips)


def _operators(region: RegionResult) -> Sequence[Operator]:
    """The operators; without kinds for a result of before their kinds were recorded."""
    computes = arithmetic(region.backend, region.variant).value
    return region.operators or [
        Operator("operator", "int8" if name in region.int8 else computes) for name in region.nodes
    ]
