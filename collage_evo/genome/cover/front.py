"""The dynamic program with two objectives: takes a search space and a budget, gives covers from fastest to exact.

Whatever is cheapest in latency + lambda x squared error lies on the lower convex hull of both. Squared errors of
parts add up, so that the program needs no change but other costs. A value of lambda that is the slope between two
points of the hull leads to a third between them, or shows that there is none (Cohon, 1978).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from collage_evo.genome.cover.dynamic_program import Cover, cheapest_covers

if TYPE_CHECKING:
    from collage_evo.genome.space import SearchSpace

EFFORT = 20_000
"""States examined for each value of lambda."""

POINTS = 10
"""Points of the hull looked for. Those that close in on the budget come first, whatever their number."""

NEAR = 4
"""Cheapest covers asked for at the hull's slope at the budget: some may fit into it better than the hull's points."""

SAME = 1e-9


@dataclass(frozen=True)
class FrontCover:
    """Matches that cover the graph, their latency by the additive model in ms, and their squared relative error."""

    matches: tuple[int, ...]
    ms: float
    error2: float


@dataclass(frozen=True)
class CoverFront:
    """Covers on the lower convex hull of latency against squared error, the fastest first, and some near it.

    ``slope`` is what the hull trades at the budget, in ms for each unit of squared error; 0 where the budget is no
    bound. ``near`` keep the budget and are among the cheapest at that slope, the fastest first.
    """

    hull: tuple[FrontCover, ...]
    near: tuple[FrontCover, ...] = ()
    slope: float = 0.0


def cover_front(space: SearchSpace, budget: float) -> CoverFront:
    """The hull as predicted. ``budget`` is a relative error.

    Lambda is bisected until the hull's segment that the budget lies on is known; further points are sought where the
    hull is least known.

    Raises:
        InputError: no acyclic exact cover exists.
    """
    fast = _cover(space, cheapest_covers(space, effort=EFFORT).covers[0], 0.0)
    if not any(space.error2) or not fast.error2:
        return CoverFront((fast,))
    exact = _most_exact(space)
    if exact.ms <= fast.ms + SAME * abs(fast.ms):  # what errs costs as much
        return CoverFront((exact,))
    hull = [fast, exact] if exact.error2 < fast.error2 else [fast]
    closed: set[tuple[float, float]] = set()
    while True:
        segment = _next_segment(hull, closed, budget)
        if segment is None:
            break
        left, right = hull[segment], hull[segment + 1]
        found = _at(space, _slope(left, right))[0]
        if _below(found, left, right):
            hull.insert(segment + 1, found)
        else:
            closed.add((left.ms, right.ms))
    over = [cover for cover in hull if cover.error2 > budget**2]
    kept = [cover for cover in hull if cover.error2 <= budget**2]
    if not over or not kept:
        return CoverFront(tuple(hull))
    slope = _slope(over[-1], kept[0])
    near = [cover for cover in _at(space, slope, NEAR) if cover.error2 <= budget**2]
    return CoverFront(tuple(hull), tuple(sorted(near, key=lambda cover: cover.ms)), slope)


def _most_exact(space: SearchSpace) -> FrontCover:
    """The cheapest cover of the least error: matches that add none, else a lambda that outweighs all latency."""
    total = sum(max(space.cost.match_ms[m] for m in options) for options in space.candidates)
    least = min((space.error2[m] for m in space.usable if space.error2[m] > 0), default=1.0)
    return _at(space, total / least)[0]


def _at(space: SearchSpace, slope: float, k: int = 1) -> list[FrontCover]:
    """The ``k`` cheapest covers in latency + ``slope`` x squared error."""
    return [_cover(space, cover, slope) for cover in cheapest_covers(space.priced(slope), k, EFFORT).covers]


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


def _next_segment(hull: list[FrontCover], closed: set[tuple[float, float]], budget: float) -> int | None:
    """The segment to look below next: the one across the budget, then the widest; None when all is known."""
    pairs = list(pairwise(hull))
    open_ = [i for i, (left, right) in enumerate(pairs) if (left.ms, right.ms) not in closed]
    for i in open_:
        if pairs[i][1].error2 <= budget**2 < pairs[i][0].error2:
            return i
    if len(hull) >= POINTS or not open_:
        return None
    return max(open_, key=lambda i: _width(*pairs[i], hull))


def _width(left: FrontCover, right: FrontCover, hull: list[FrontCover]) -> float:
    """How far apart two points of the hull are, each axis relative to the whole hull."""
    return math.hypot(
        (right.ms - left.ms) / (hull[-1].ms - hull[0].ms),
        (math.sqrt(left.error2) - math.sqrt(right.error2)) / math.sqrt(hull[0].error2),
    )

