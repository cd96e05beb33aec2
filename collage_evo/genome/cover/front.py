"""Dynamic program with two objectives: covers from the fastest to the one with the least of another objective.

The cheapest cover in latency + lambda x the other objective lies on the lower convex hull of both. The other
objective is a sum over parts, so that the program needs no change but other costs. A value of lambda that is the
slope between two points of the hull leads to a third between them, or shows that there is none (Cohon, 1978).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collage_evo.genome.cover.dynamic_program import Cover, cheapest_covers
from collage_evo.genome.cover.states import ROUNDING
from collage_evo.genome.outcome import Objective

if TYPE_CHECKING:
    from collage_evo.genome.space import SearchSpace


@dataclass(frozen=True)
class FrontCover:
    """Matches that cover the graph, their latency by the additive model in ms, and their sum of the other
    objective."""

    matches: tuple[int, ...]
    ms: float
    added: float


@dataclass(frozen=True)
class CoverFront:
    """Covers on the lower convex hull of latency against the other objective, the fastest first.

    ``slope`` is the hull's trade-off at the bound, in ms for each unit of the objective; 0 where the bound is none.
    """

    hull: tuple[FrontCover, ...]
    slope: float = 0.0


def cover_fronts(space: SearchSpace, objective: Objective, bound: float, fast: Cover) -> Iterator[CoverFront]:
    """The predicted hull as known after each run of the program, which may take seconds; the last one is complete.

    ``bound`` is the largest accepted value of ``objective``, ``fast`` the fastest cover. Lambda is bisected until the
    hull's segment that contains the bound is known. Its other points are not computed: the search reaches other
    bounds by itself.

    Raises:
        InputError: no acyclic exact cover exists.
    """
    most = objective.amount(bound)

    def at(slope: float) -> FrontCover:
        """The cheapest cover in latency + ``slope`` x the objective."""
        priced = space.priced({objective: slope})
        return of(cheapest_covers(priced, effort=space.policy.cover_states).covers[0], slope)

    def of(cover: Cover, slope: float) -> FrontCover:
        added = space.added(objective, cover.matches)
        return FrontCover(cover.matches, cover.cost_ms - slope * added, added)

    fastest = of(fast, 0.0)
    if not fastest.added:
        yield CoverFront((fastest,))
        return
    # The cheapest cover of those with the least of the objective: at a lambda that outweighs all latency.
    total = sum(max(space.cost.match_ms[m] for m in options) for options in space.candidates)
    least = min(added for m in space.usable if (added := space.terms[objective][m]) > 0)
    exact = at(total / least)
    if exact.ms <= fastest.ms + ROUNDING * abs(fastest.ms):  # the fastest cover costs as much
        yield CoverFront((exact,))
        return
    hull = [fastest, exact] if exact.added < fastest.added else [fastest]
    over = [cover for cover in hull if cover.added > most]
    within = [cover for cover in hull if cover.added <= most]
    yield CoverFront(tuple(hull))
    while over and within:
        slope = _slope(over[-1], within[0])
        between = at(slope)
        if not _below(between, over[-1], within[0]):
            yield CoverFront((*over, *within), slope)
            return
        if between.added > most:
            over.append(between)
        else:
            within.insert(0, between)
        yield CoverFront((*over, *within), slope)


def _slope(left: FrontCover, right: FrontCover) -> float:
    return (right.ms - left.ms) / (left.added - right.added)


def _below(cover: FrontCover, left: FrontCover, right: FrontCover) -> bool:
    """Whether ``cover`` lies below the line between two points of the hull, and between them."""
    line = left.ms + _slope(left, right) * (left.added - cover.added)
    inside = right.added < cover.added < left.added and left.ms < cover.ms < right.ms
    return inside and cover.ms < line - ROUNDING * abs(line)
