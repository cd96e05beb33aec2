"""Covers on the hull of latency and error, from the fastest to the most exact."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from collage_evo.genome.cost_model import Border, CostModel
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.cover.front import CoverFront, cover_fronts
from collage_evo.genome.encoding import place
from collage_evo.genome.outcome import Objective
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match
from tests.support.precise import BUDGET, CHAINS, chain_optimum_ms, well_told
from tests.support.simulated_target import NonAdditive
from tests.support.spaces import make_graph


def front_of(space: SearchSpace, budget: float) -> CoverFront:
    """All of the front as predicted."""
    *_, last = cover_fronts(space, Objective.ERROR, budget, cheapest_covers(space).covers[0])
    return last


def test_covers_go_from_the_fastest_to_the_exact_and_reach_the_optimum_of_what_they_are_told() -> None:
    told = replace(well_told(CHAINS[1]), effects=NonAdditive()).make()
    front = front_of(told.space, BUDGET)
    hull = front.hull
    assert len(hull) >= 4
    assert [c.ms for c in hull] == sorted(c.ms for c in hull)
    slopes = [(b.ms - a.ms) / (a.added - b.added) for a, b in pairwise(hull)]
    assert slopes == sorted(slopes)
    assert hull[-1].added == 0
    for cover in hull:
        placement = place(cover.matches, told.space)
        assert told.latency_ms(placement) <= cover.ms + 1e-9
        assert told.error(placement) == pytest.approx(math.sqrt(cover.added))
    best = min(cover.ms for cover in hull if cover.added <= BUDGET**2)
    optimum = chain_optimum_ms(told)
    assert optimum - 1e-9 <= best <= 1.03 * optimum
    # No placement within the budget lies below the hull, at its slope there.
    bound = min(cover.ms + front.slope * (cover.added - BUDGET**2) for cover in hull)
    assert bound <= optimum + 1e-9


@pytest.mark.parametrize("order", [("exact", "rough"), ("rough", "exact")])
def test_where_errors_win_no_time_the_exact_cover_is_the_front(order: tuple[str, str]) -> None:
    matches = tuple(Match(1 << node, backend) for backend in order for node in range(2))
    costs = CostModel((1.0,) * 4, {match.engine: Border(0.0, 0.0) for match in matches})
    error2 = tuple(1e-4 if match.backend == "rough" else 0.0 for match in matches)
    space = SearchSpace(make_graph([[], [0]]), matches, costs, terms={Objective.ERROR: error2})
    (cover,) = front_of(space, BUDGET).hull
    assert cover.added == 0.0


def test_a_budget_that_is_no_bound_has_no_price() -> None:
    target = CHAINS[0].make()
    assert front_of(target.space, math.inf).slope == 0
    exact = replace(target.space, terms={Objective.ERROR: (0.0,) * len(target.space.matches)})
    assert len(front_of(exact, BUDGET).hull) == 1
