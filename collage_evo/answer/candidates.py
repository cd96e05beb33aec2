"""Candidates of the final race: a selection of the placements that a search measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collage_evo.accuracy.limits import Limits
from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import Arithmetic
from collage_evo.genome.outcome import Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.state import Evaluated

EXACT = (Arithmetic.FLOAT32.value,)
"""Arithmetics of placements in float32 throughout."""


@dataclass(frozen=True)
class Tried:
    """Placements that a search measured, by key, and the space of their genomes."""

    space: SearchSpace
    evaluated: Mapping[str, Evaluated]

    def predicted(self, placement: Placement) -> float:
        """The predicted squared error of ``placement``, the sum over its matches."""
        return sum(self.error2(region.matches) for region in placement.regions)

    def error2(self, matches: Iterable[int]) -> float:
        """The predicted squared error of ``matches``."""
        return self.space.added(Objective.ERROR, matches)


def arithmetics(placement: Placement, space: SearchSpace) -> tuple[str, ...]:
    """Names of the arithmetics of the matches that make up a placement, sorted."""
    engines = {space.matches[match].engine for region in placement.regions for match in region.matches}
    return tuple(sorted({arithmetic_of(*engine).value for engine in engines}))

MARGIN = 0.95
"""At least one candidate keeps to this share of the budget of error. Chosen."""
SAFER = 0.5
"""Where a metric finds some equally wrong, each is predicted to err this share of the one before it. Chosen."""


def feasible_placements(tried: Tried, placements: Iterable[Placement], limits: Limits) -> tuple[Placement, ...]:
    """Those of measured ``placements`` that are within ``limits``, in the same order."""

    def keeps(placement: Placement) -> bool:
        exact = arithmetics(placement, tried.space) == EXACT
        return limits.allows(tried.evaluated[placement.key].outcome.error, exact)

    return tuple(filter(keeps, placements))


def race_candidates(
    tried: Tried, placements: Iterable[Placement], limits: Limits, count: int, answered: str = ""
) -> tuple[Placement, ...]:
    """Candidates of the race among measured ``placements``: the first ``count`` within ``limits``.

    The one that was ``answered`` before, by its key, comes first.
    """
    feasible = feasible_placements(tried, placements, limits)
    before = [placement for placement in feasible if placement.key == answered]
    others = [placement for placement in feasible if placement.key != answered]
    chosen = others[: max(1, count - len(before))]
    # Equal errors, as of a metric that counts few samples, carry little information: each next candidate is predicted
    # to have a much smaller error, so that not all of them exceed the budget on other samples.
    if len({tried.evaluated[placement.key].outcome.error for placement in chosen}) < len(chosen):
        safer = _ever_safer(tried, others)[: len(chosen)]
        chosen = [*safer, *(placement for placement in chosen if placement not in safer)][: len(chosen)]
    # Samples that the search has not seen may show a larger error: at least one is within the limits by a margin.
    safe = feasible_placements(tried, others, replace(limits, budget=MARGIN * limits.budget))
    if safe and len(chosen) > 1 and not any(placement in safe for placement in chosen):
        chosen = [*chosen[:-1], safe[0]]
    return (*before, *chosen)


def _ever_safer(tried: Tried, placements: Sequence[Placement]) -> list[Placement]:
    """The first of ``placements``, and after each the first with a much smaller predicted error."""
    chosen: list[Placement] = []
    for placement in placements:
        most = SAFER**2 * tried.predicted(chosen[-1]) if chosen else math.inf
        if tried.predicted(placement) <= most:
            chosen.append(placement)
            if not tried.predicted(placement):
                break
    return chosen


def safer_budget(tried: Tried, limits: Limits, seen: Mapping[str, float]) -> float:
    """The largest error on samples of the search that is within ``limits`` on others, if these raise it by as large a
    factor as that of the worst of those whose errors there, by key, were ``seen``.

    0.0 if some of them had no error on samples of the search, for example by a metric that counts: then the factor is
    unknown.
    """
    search_errors = {key: tried.evaluated[key].outcome.error or 0.0 for key in seen}
    factors = (error / search_errors[key] if search_errors[key] > 0 else math.inf for key, error in seen.items())
    factor = max(factors, default=1.0)
    return MARGIN * limits.budget / max(1.0, factor)


def safer_candidates(
    tried: Tried, placements: Iterable[Placement], limits: Limits, seen: Mapping[str, float]
) -> tuple[Placement, ...]:
    """Candidates after those that exceeded the budget on held-out samples, where their errors by key were ``seen``.

    The first of ``placements`` within :func:`safer_budget`, or without one the first with a much smaller predicted
    error; and the first that is exact.
    """
    placements = tuple(placements)
    others = [placement for placement in placements if placement.key not in seen]
    if budget := safer_budget(tried, limits, seen):
        safe = feasible_placements(tried, others, replace(limits, budget=budget))
    else:
        least = min((one for one in placements if one.key in seen), key=tried.predicted)
        safe = tuple(_ever_safer(tried, (least, *feasible_placements(tried, others, limits)))[1:])
    exact = [one for one in feasible_placements(tried, others, limits) if arithmetics(one, tried.space) == EXACT]
    return tuple(dict.fromkeys((*safe[:1], *exact[:1])))
