"""The dynamic program with two objectives: takes a search space and a budget, gives covers from fastest to exact.

Whatever is cheapest in latency + lambda x squared error lies on the lower convex hull of both. Squared errors of
parts add up, so that the program needs no change but other costs. A value of lambda that is the slope between two
points of the hull leads to a third between them, or shows that there is none (Cohon, 1978).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collage_evo.genome.cover.dynamic_program import Cover, cheapest_covers

if TYPE_CHECKING:
    from collage_evo.genome.space import SearchSpace

EFFORT = 20_000
"""States examined for each value of lambda."""

SAME = 1e-9


@dataclass(frozen=True)
class FrontCover:
    """Matches that cover the graph, their latency by the additive model in ms, and their squared relative error."""

    matches: tuple[int, ...]
    ms: float
    error2: float


@dataclass(frozen=True)
class CoverFront:
    """Covers on the lower convex hull of latency against squared error, the fastest first.

    ``slope`` is what the hull trades at the budget, in ms for each unit of squared error; 0 where the budget is no
    bound.
    """

    hull: tuple[FrontCover, ...]
    slope: float = 0.0


def cover_fronts(space: SearchSpace, budget: float, fast: Cover) -> Iterator[CoverFront]:
    """The hull as predicted, as known after each run of the program, which may take seconds; the last is all of it.

    ``budget`` is a relative error, ``fast`` the fastest cover. Lambda is bisected until the hull's segment that the
    budget lies on is known. Its other points are not looked for: the search comes to other budgets by itself.

    Raises:
        InputError: no acyclic exact cover exists.
    """
    hull = [_cover(space, fast, 0.0)]
    if not any(space.error2) or not hull[0].error2:
        yield CoverFront(tuple(hull))
        return
    exact = _most_exact(space)
    if exact.ms <= hull[0].ms + SAME * abs(hull[0].ms):  # what errs costs as much
        yield CoverFront((exact,))
        return
    hull += [exact] if exact.error2 < hull[0].error2 else []
    over = [cover for cover in hull if cover.error2 > budget**2]
    kept = [cover for cover in hull if cover.error2 <= budget**2]
    yield CoverFront(tuple(hull))
    while over and kept:
        slope = _slope(over[-1], kept[0])
        found = _at(space, slope)
        if not _below(found, over[-1], kept[0]):
            yield CoverFront((*over, *kept), slope)
            return
        if found.error2 > budget**2:
            over.append(found)
        else:
            kept.insert(0, found)
        yield CoverFront((*over, *kept), slope)


def _most_exact(space: SearchSpace) -> FrontCover:
    """The cheapest cover of the least error: matches that add none, else a lambda that outweighs all latency."""
    total = sum(max(space.cost.match_ms[m] for m in options) for options in space.candidates)
    least = min((space.error2[m] for m in space.usable if space.error2[m] > 0), default=1.0)
    return _at(space, total / least)


def _at(space: SearchSpace, slope: float) -> FrontCover:
    """The cheapest cover in latency + ``slope`` x squared error."""
    return _cover(space, cheapest_covers(space.priced(slope), effort=EFFORT).covers[0], slope)


def _cover(space: SearchSpace, cover: Cover, slope: float) -> FrontCover:
    error2 = sum(space.error2[match] for match in cover.matches) if space.error2 else 0.0
    return FrontCover(cover.matches, cover.cost_ms - slope * error2, error2)


def _slope(left: FrontCover, right: FrontCover) -> float:
    return (right.ms - left.ms) / (left.error2 - right.error2)


def _below(found: FrontCover, left: FrontCover, right: FrontCover) -> bool:
    """Whether ``found`` lies below the line between two points of the hull, and between them."""
    line = left.ms + _slope(left, right) * (left.error2 - found.error2)
    inside = right.error2 < found.error2 < left.error2 and left.ms < found.ms < right.ms
    return inside and found.ms < line - SAME * abs(line)
