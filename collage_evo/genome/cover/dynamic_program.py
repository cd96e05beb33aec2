"""Exact dynamic program: the cheapest acyclic covers of a search space by the additive model.

Collage (PACT 2022) picks its op-level program by dynamic programming without costs between backends; this one charges
the cost of crossings, takes any DAG, and reports a bound on its distance from the optimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collage_evo.errors import NotSearchable
from collage_evo.genome.cover.frontier import Frontier
from collage_evo.genome.cover.states import StateSearch, unroll

if TYPE_CHECKING:
    from collage_evo.genome.space import SearchSpace

MOST_STATES = 220_000
"""States examined before the search settles for a bound, by default; some 35 microseconds each."""

DIFFERING_STATES = 10_000
"""States for each cover that is to differ from earlier ones. Chosen."""
PENALTY = 0.15
"""Share by which a match costs more for each earlier cover that contains it, where covers are to differ. Chosen."""

SCOUT_STATES = 12
"""States a step of the first, narrow pass, which finds the cost above which the second need not search."""


@dataclass(frozen=True)
class Cover:
    """Matches that cover the graph exactly and without a cycle, in an order that can run; cost in ms."""

    matches: tuple[int, ...]
    cost_ms: float


@dataclass(frozen=True)
class DpResult:
    """The cheapest covers found, ascending.

    ``cost_ms`` counts a tensor once for each other engine that reads it, and a copy once for each other memory where
    it is read or returned. It takes neighbours of one engine as merged; a placement whose equal neighbours cannot all
    merge costs more than that, never less.
    ``bound_ms`` is a lower bound on the cheapest cover: equal to ``cost_ms`` when ``exact``.
    """

    covers: tuple[Cover, ...]
    states: int
    exact: bool
    bound_ms: float

    @property
    def cost_ms(self) -> float:
        """Cost of the cheapest cover found, in ms."""
        return self.covers[0].cost_ms


def cheapest_covers(
    space: SearchSpace,
    k: int = 1,
    effort: int = MOST_STATES,
    match_ms: tuple[float, ...] | None = None,
    allowed: Iterable[int] | None = None,
) -> DpResult:
    """The ``k`` cheapest different acyclic covers of the graph.

    Args:
        k: how many covers (fewer come back when fewer exist).
        effort: about how many states to examine; when more are needed the result is not ``exact``.
        match_ms: costs to use in place of the model's, in ms, by match.
        allowed: restrict the search to these matches.

    Raises:
        InputError: no acyclic exact cover exists, or none was found within ``effort``.
    """
    costs = space.cost.match_ms if match_ms is None else match_ms
    frontier = Frontier(space, costs, space.usable if allowed is None else allowed)
    narrow = max(1, min(SCOUT_STATES, effort // (2 * frontier.size))) * k
    scout = StateSearch(frontier, k, narrow).run()
    wide = narrow * (effort * k - scout.expanded) // max(1, scout.expanded)
    if scout.complete or wide <= narrow:
        return _result(scout)
    ceiling = scout.found[k - 1].cost if len(scout.found) >= k else float("inf")
    full = StateSearch(frontier, k, wide, ceiling).run()
    full.expanded += scout.expanded
    both = {frozenset(unroll(entry.chain)): entry for entry in full.found + scout.found}
    full.found = sorted(both.values(), key=lambda entry: entry.cost)[:k]
    return _result(full)


def known_cover(space: SearchSpace) -> tuple[int, ...]:
    """Some acyclic exact cover of ``space``, always the same; searched for once.

    Raises:
        InputError: there is none although every node is in a match.
    """
    if not space.known_cover:
        space.known_cover.extend(cheapest_covers(space).covers[0].matches)
    return tuple(space.known_cover)


def differing_covers(space: SearchSpace, k: int) -> Iterator[Cover]:
    """Up to ``k`` good covers that differ much, each as soon as it is found.

    Each match costs more for every earlier cover that contains it, by ``PENALTY``. Reported costs are the true ones,
    in ms.
    """
    uses = [0] * len(space.matches)
    yielded: set[frozenset[int]] = set()
    for _ in range(3 * k):
        factors = (1.0 + PENALTY * n for n in uses)
        penalty = tuple(ms * factor for ms, factor in zip(space.cost.match_ms, factors, strict=True))
        best = cheapest_covers(space, effort=DIFFERING_STATES, match_ms=penalty).covers[0]
        if frozenset(best.matches) not in yielded:
            yielded.add(frozenset(best.matches))
            extra = sum(penalty[match] - space.cost.match_ms[match] for match in best.matches)
            yield Cover(best.matches, best.cost_ms - extra)
        if len(yielded) == k:
            break
        for match in best.matches:
            uses[match] += 1


def _result(search: StateSearch) -> DpResult:
    if not search.found:
        raise NotSearchable(
            "the matches do not fit together into a cover of the graph"
            + ("" if search.cut == float("inf") else f" within {search.max_states} states a step")
            + "; enable a backend that takes single operators"
        )
    covers = tuple(Cover(unroll(entry.chain), entry.cost) for entry in search.found)
    return DpResult(covers, search.expanded, search.complete, min(search.cut, covers[0].cost_ms))
