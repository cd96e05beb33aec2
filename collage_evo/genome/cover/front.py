"""The dynamic program with two objectives: takes a search space, another objective than latency and the largest
value of it that is wanted, gives covers from the fastest to the one that adds the least.

Whatever is cheapest in latency + lambda x what is added lies on the lower convex hull of both. What parts add is a
sum, so that the program needs no change but other costs. A value of lambda that is the slope between two points of
the hull leads to a third between them, or shows that there is none (Cohon, 1978).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from collage_evo.fitness.outcome import Objective
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
    """Matches that cover the graph, their latency by the additive model in ms, and what they add to the objective."""

    matches: tuple[int, ...]
    ms: float
    added: float


@dataclass(frozen=True)
class CoverFront:
    """Covers on the lower convex hull of latency against what is added, the fastest first, and some near it.

    ``slope`` is what the hull trades at the budget, in ms for each unit that is added; 0 where the budget is no
    bound. ``near`` keep the budget and are among the cheapest at that slope, the fastest first.
    """

    hull: tuple[FrontCover, ...]
    near: tuple[FrontCover, ...] = ()
    slope: float = 0.0


def cover_front(space: SearchSpace, objective: Objective, budget: float) -> CoverFront:
    """The hull of latency and ``objective`` as predicted.

    Lambda is bisected until the hull's segment that the budget lies on is known; further points are sought where the
    hull is least known.

    Raises:
        InputError: no acyclic exact cover exists.
    """
    most = objective.amount(budget)

    def at(slope: float, k: int = 1) -> list[FrontCover]:
        """The ``k`` cheapest covers in latency + ``slope`` x what is added."""
        found = cheapest_covers(space.priced({objective: slope}), k, EFFORT).covers
        return [of(cover, slope) for cover in found]

    def of(cover: Cover, slope: float) -> FrontCover:
        added = space.added(objective, cover.matches)
        return FrontCover(cover.matches, cover.cost_ms - slope * added, added)

    (fast,) = at(0.0)
    if not fast.added:
        return CoverFront((fast,))
    # The cheapest cover of those that add the least: at a lambda that outweighs all latency.
    total = sum(max(space.cost.match_ms[m] for m in options) for options in space.candidates)
    least = min(added for m in space.usable if (added := space.terms[objective][m]) > 0)
    (exact,) = at(total / least)
    if exact.ms <= fast.ms + SAME * abs(fast.ms):  # what adds more costs as much
        return CoverFront((exact,))
    hull = [fast, exact] if exact.added < fast.added else [fast]
    closed: set[tuple[float, float]] = set()
    while (segment := _next_segment(hull, closed, most)) is not None:
        left, right = hull[segment], hull[segment + 1]
        (found,) = at(_slope(left, right))
        if _below(found, left, right):
            hull.insert(segment + 1, found)
        else:
            closed.add((left.ms, right.ms))
    over = [cover for cover in hull if cover.added > most]
    kept = [cover for cover in hull if cover.added <= most]
    if not over or not kept:
        return CoverFront(tuple(hull))
    slope = _slope(over[-1], kept[0])
    near = [cover for cover in at(slope, NEAR) if cover.added <= most]
    return CoverFront(tuple(hull), tuple(sorted(near, key=lambda cover: cover.ms)), slope)


def _slope(left: FrontCover, right: FrontCover) -> float:
    return (right.ms - left.ms) / (left.added - right.added)


def _below(found: FrontCover, left: FrontCover, right: FrontCover) -> bool:
    """Whether ``found`` lies below the line between two points of the hull, and between them."""
    line = left.ms + _slope(left, right) * (left.added - found.added)
    inside = right.added < found.added < left.added and left.ms < found.ms < right.ms
    return inside and found.ms < line - SAME * abs(line)


def _next_segment(hull: list[FrontCover], closed: set[tuple[float, float]], most: float) -> int | None:
    """The segment to look below next: the one across ``most``, then the widest; None when all is known."""
    pairs = list(pairwise(hull))
    open_ = [i for i, (left, right) in enumerate(pairs) if (left.ms, right.ms) not in closed]
    for i in open_:
        if pairs[i][1].added <= most < pairs[i][0].added:
            return i
    if len(hull) >= POINTS or not open_:
        return None
    return max(open_, key=lambda i: _width(*pairs[i], hull))


def _width(left: FrontCover, right: FrontCover, hull: list[FrontCover]) -> float:
    """How far apart two points of the hull are, each axis relative to the whole hull."""
    return math.hypot(
        (right.ms - left.ms) / (hull[-1].ms - hull[0].ms),
        (math.sqrt(left.added) - math.sqrt(right.added)) / math.sqrt(hull[0].added),
    )
