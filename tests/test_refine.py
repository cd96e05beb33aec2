"""Costs corrected by what the regions of the cheapest cover really take, under a meter that the test makes."""

from dataclasses import replace

from collage_evo.fitness.costs.model import Border, CostModel
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Match
from collage_evo.run.refine import refine_costs
from tests.support.meters import Meter
from tests.support.spaces import make_graph

GRAPH = make_graph([[], [0], [1], [2]])
ENGINES = ("fast", "solid")
FREE = Border(0.0, 0.0)


def meter_of(surprise: float) -> Meter:
    """Single operators cost what the model says; ``fast`` ones joined cost ``surprise`` times as much."""
    return Meter(GRAPH, lambda match: match.nodes.bit_count() * (surprise if match.backend == "fast" else 1.2))


def space() -> SearchSpace:
    matches = tuple(Match(1 << i, backend) for backend in ENGINES for i in range(4))
    costs = tuple(1.0 if m.backend == "fast" else 1.2 for m in matches)
    return SearchSpace(GRAPH, matches, CostModel(costs, {(backend, "default"): FREE for backend in ENGINES}))


def cheapest(space: SearchSpace) -> list[str]:
    return [r.backend for r in place(cheapest_covers(space).covers[0].matches, space).regions]


def refined(meter: Meter) -> SearchSpace:
    return refine_costs(space(), meter, lambda _: None)  # type: ignore[arg-type]


def test_a_region_slower_than_its_parts_promise_loses_its_place() -> None:
    assert cheapest(space()) == ["fast"]
    meter = meter_of(surprise=1.5)
    assert cheapest(refined(meter)) == ["solid"]
    assert {match.backend for match in meter.asked} == {"fast", "solid"}


def test_a_prediction_that_holds_stays() -> None:
    meter = meter_of(surprise=1.0)
    after = refined(meter)
    assert cheapest(after) == ["fast"]
    assert after.cost.match_ms[:8] == space().cost.match_ms


def test_what_was_measured_is_a_match_of_its_own() -> None:
    after = refined(meter_of(surprise=1.1))
    placement = place(cheapest_covers(after).covers[0].matches, after)
    assert after.predict(placement) == 4 * 1.1
    assert after.matches[-1].nodes == GRAPH.all_nodes


def test_parts_that_were_free_get_equal_shares() -> None:
    free = space()
    model = replace(free.cost, match_ms=tuple(0.0 if m.backend == "fast" else 9.0 for m in free.matches))
    after = refine_costs(replace(free, cost=model), meter_of(surprise=1.0), lambda _: None)  # type: ignore[arg-type]
    assert after.cost.match_ms[:4] == (1.0,) * 4


def test_a_region_that_fails_changes_nothing() -> None:
    failing = Meter(GRAPH, lambda match: Failure(Fault.CRASH, "killed by SIGSEGV"))
    assert refined(failing) == space()


def test_an_estimated_match_of_the_cheapest_cover_is_measured_and_keeps_its_mark_no_longer() -> None:
    meter, before = meter_of(surprise=1.5), space()
    whole = Match(GRAPH.all_nodes, "fast")
    cost = CostModel((*before.cost.match_ms, 3.0), before.cost.borders, frozenset({8}))
    after = refine_costs(replace(before, matches=(*before.matches, whole), cost=cost), meter, lambda _: None)  # type: ignore[arg-type]
    assert after.cost.match_ms[8] == 4 * 1.5
    assert not after.cost.estimated
    assert cheapest(after) == ["solid"]


def test_a_rewritten_region_is_measured_as_one_and_is_none_with_the_plain_one() -> None:
    written = Match(2, "fast", "default~r", base="default", rewrites=(("r", 2),))
    cost = CostModel((*space().cost.match_ms, 0.5), space().cost.borders, families={written.engine: written.family})
    meter = Meter(GRAPH, lambda match: 3.0 if match.rewrites else float(match.nodes.bit_count()))
    before = replace(space(), matches=(*space().matches, written), cost=cost)
    after = refine_costs(before, meter, lambda _: None)  # type: ignore[arg-type]
    (grown,) = [match for match in after.matches if match.pattern == "grown" and match.rewrites]
    assert (grown.nodes, grown.rewrites, grown.family) == (GRAPH.all_nodes, (("r", 2),), ("fast", "default"))
    assert after.cost.match_ms[after.matches.index(grown)] == 3.0
