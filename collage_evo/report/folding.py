"""Run-length folding of repeated stretches: a repeated stretch is written once and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
LONGEST = 160
"""Most items in a stretch that is searched for behind itself."""


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
    found: list[T | Folded[T]] = []
    start = 0
    while start < len(items):
        saved, size, times = _best(items, start, longest)
        later = (_best(items, start + k, longest)[0] for k in range(1, size)) if saved else ()
        if not saved or max(later, default=0) > saved:  # a longer stretch that begins here and there must not be cut
            found.append(items[start])
            start += 1
            continue
        body = items[start : start + size]
        found.append(Folded(folded(body, size // 2), times))
        start += size * times
    return tuple(found)


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
