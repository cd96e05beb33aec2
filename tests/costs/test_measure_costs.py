"""What is known of costs: by profiles, by kernels timed alone, by cuts; under a meter that the test makes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collage_evo.backends.base import YES
from collage_evo.backends.profiled import KernelTime
from collage_evo.backends.variants import Variant
from collage_evo.costs.known_costs import CostScope, KnownCosts
from collage_evo.costs.matches import Costs
from collage_evo.costs.measure_costs import Profiled, measure_borders, profile_engines, time_kernels
from collage_evo.costs.profiles import ProfileRequest
from collage_evo.errors import NotSearchable
from collage_evo.fitness.jobs import KernelTimes
from collage_evo.genome.cost_model import Border, Copies, CostModel, Engine
from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import place
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.ir.graph import members
from collage_evo.graph.ir.roofline import multiply_adds
from collage_evo.patterns.match import Match, Placement
from collage_evo.pruning import SLOW_MODEL
from tests.support.meters import Meter
from tests.support.spaces import products
from tests.support.standing import StandingBackend

NO = Failure(Fault.BUILD, "no")

GRAPH = products([4, *(width for width in range(8, 68, 2) for _ in range(2))])
SIZE = len(GRAPH.nodes)
SLOWNESS = {"quick": 1.0, "slow": 2.5, "narrow": 1.4}
MATCHES = [Match(1 << node, backend) for backend in SLOWNESS for node in range(SIZE)]
QUICK, SLOW = ("quick", "default"), ("slow", "default")


class Backend:
    def variant(self, name: str) -> Variant:
        return Variant(name)

    def supports(self, graph: object, nodes: int) -> object:
        return YES


class WithProfiler(Backend):
    def profiles(self, variant: Variant) -> bool:
        return True

    def profile(self, *given: object) -> Sequence[KernelTime]:
        raise NotImplementedError("a measuring process does that")


BACKENDS: Mapping[str, Any] = {name: Backend() for name in SLOWNESS}
PROFILED: Mapping[str, Any] = {name: WithProfiler() for name in SLOWNESS}


def meter_of(broken: str = "") -> Meter:
    """Times are proportional to the arithmetic; ``narrow`` is quickest on small ones; joining saves nothing."""
    return Meter(GRAPH, lambda match: NO if match.backend == broken else true_ms(match))


def true_ms(match: Match) -> float:
    return sum(node_ms(match.backend, node) for node in members(match.nodes))


def node_ms(backend: str, node: int) -> float:
    size = multiply_adds(GRAPH, 1 << node)
    return size * 1e-5 * (0.5 if backend == "narrow" and size < 8_000 else SLOWNESS[backend])


def profile(asked: Sequence[ProfileRequest], needed: int, over: Callable[[], bool]) -> Iterator[Profiled]:
    """A library tells a tenth less of each kernel than the whole model takes; a rewritten site takes a quarter."""
    for one in asked:
        nodes = list(members(one.region.nodes))
        ms = {node: node_ms(one.engine[0], node) / (4 if one.sites else 1) for node in nodes}
        kernels = tuple((1 << node, 0.9 * ms[node]) for node in nodes)
        yield one, KernelTimes(kernels, (sum(ms.values()),) * 3)


def surveyed(
    meter: Any,
    matches: Sequence[Match] = MATCHES,
    backends: Mapping[str, Any] = BACKENDS,
    cuts: Callable[[Sequence[Placement]], Sequence[Outcome]] = lambda placements: [Outcome(None)] * len(placements),
    **more: Any,
) -> tuple[KnownCosts, SearchSpace]:
    costs = Costs(meter, matches, 4.0)
    known = profile_engines(CostScope(GRAPH, tuple(matches), backends, {}, **more), meter, profile, lambda _: None)
    known = time_kernels(known, costs, lambda _: None)
    known = measure_borders(known, meter, cuts, lambda _: None)
    return known, known.space()


def on(space: SearchSpace, engine: Engine) -> float:
    """What the whole model is predicted to take on ``engine``."""
    own = [i for i, match in enumerate(space.matches) if match.engine == engine and match.nodes.bit_count() == 1]
    return space.predict(place(own, space))


def test_of_libraries_with_a_profiler_nothing_is_timed_alone_and_the_whole_is_as_measured() -> None:
    meter = meter_of()
    _, space = surveyed(meter, backends=PROFILED)
    assert not meter.asked
    assert not space.cost.estimated
    for backend in SLOWNESS:
        whole = sum(node_ms(backend, node) for node in range(SIZE))
        assert on(space, (backend, "default")) == pytest.approx(whole)
    best = [min(SLOWNESS, key=lambda name: node_ms(name, node)) for node in range(SIZE)]
    assert {space.matches[m].backend for m in cheapest_covers(space).covers[0].matches} <= set(best)


def test_kernels_of_a_library_without_are_held_to_what_the_whole_model_takes_there() -> None:
    baseline_ms = {SLOW: 3.0 * sum(node_ms("slow", node) for node in range(SIZE))}
    _, space = surveyed(meter_of(), baseline_ms=baseline_ms)
    assert on(space, SLOW) == pytest.approx(baseline_ms[SLOW])
    assert not space.cost.estimated


class Hasty(Meter):
    """Has time for so many."""

    left = 6

    def measure(self, matches: Sequence[Match], *given: Any) -> Any:
        some, self.left = matches[: self.left], max(0, self.left - len(matches))
        return super().measure(some, *given)


def test_the_weightiest_kernels_are_timed_first_and_no_estimate_is_more_than_the_whole() -> None:
    baseline_ms = {(name, "default"): sum(node_ms(name, node) for node in range(SIZE)) for name in SLOWNESS}
    meter: Any = Hasty(GRAPH, true_ms)
    _, space = surveyed(meter, baseline_ms=baseline_ms)
    asked = {match.nodes for match in meter.asked}
    assert asked == {1 << (SIZE - 1), 1 << (SIZE - 2)}, "on all engines, which are compared"
    assert len(space.cost.estimated) == len(MATCHES) - 6
    for engine, whole in baseline_ms.items():
        assert on(space, engine) == pytest.approx(whole)


def test_an_engine_of_which_nothing_is_known_takes_no_part() -> None:
    meter: Any = Hasty(GRAPH, true_ms)
    meter.left = 0
    _, space = surveyed(meter, baseline_ms={QUICK: 3.0})
    assert {space.matches[match].engine for match in space.usable} == {QUICK}


def test_kernels_of_an_engine_far_behind_are_not_timed() -> None:
    meter = meter_of()
    surveyed(meter, baseline_ms={QUICK: 1.0, SLOW: 9.0})
    assert {match.backend for match in meter.asked} == {"quick", "narrow"}


def test_a_match_that_fails_has_its_reason_and_no_cost() -> None:
    survey, space = surveyed(meter_of(broken="quick"))
    table = survey.table()
    assert set(table.failures.values()) == {NO}
    for index in table.failures:
        assert MATCHES[index].backend == "quick"
        assert not space.cost.usable(index)


def test_what_contains_a_match_that_failed_takes_no_part() -> None:
    meter = Meter(GRAPH, lambda match: NO if match == Match(1, "quick") else true_ms(match))
    _, space = surveyed(meter, [*MATCHES, Match(0b11, "quick"), Match(0b110, "quick")])
    assert [space.cost.usable(len(MATCHES)), space.cost.usable(len(MATCHES) + 1)] == [False, True]


def test_where_all_matches_of_a_node_fail_the_reasons_are_told() -> None:
    meter = Meter(GRAPH, lambda match: NO if match.nodes == 1 else true_ms(match))
    with pytest.raises(NotSearchable, match=r"narrow: accepted, but failed \(build: no\); quick: accepted, but"):
        surveyed(meter)


def test_what_there_was_no_time_for_is_told_as_such() -> None:
    space = surveyed(meter_of())[1]
    untimed = CostModel((math.inf,) * len(MATCHES), {})
    with pytest.raises(NotSearchable, match=r"no time to measure .* quick: accepted, but not timed; .*; enlarge"):
        replace(space, cost=untimed)


def test_copies_to_a_device_are_among_the_costs() -> None:
    copies = Copies(Border(0.1, 0.2), Border(0.3, 0.4))
    cost = surveyed(meter_of(), off_host=frozenset({SLOW}), copies=copies)[1].cost
    assert (cost.off_host, cost.copies) == (frozenset({SLOW}), copies)


def test_borders_are_what_random_cuts_take_beyond_their_kernels() -> None:
    cut: list[Placement] = []

    def measure(placements: Sequence[Placement]) -> list[Outcome]:
        cut.extend(placements)
        return [Outcome(kernels(placement) + 0.4 * (len(placement.regions) - 1)) for placement in placements]

    def kernels(placement: Placement) -> float:
        return sum(true_ms(Match(region.nodes, region.backend)) for region in placement.regions)

    _, space = surveyed(meter_of(), backends=PROFILED, cuts=measure)
    assert all(len(placement.regions) > 1 for placement in cut)
    usual = surveyed(meter_of(), backends=PROFILED)[1].cost.borders
    assert all(border.fixed_ms > usual[engine].fixed_ms for engine, border in space.cost.borders.items())
    off = [space.predict(placement) / (kernels(placement) + 0.4 * (len(placement.regions) - 1)) for placement in cut]
    assert np.median(off) == pytest.approx(1.0, abs=0.1)


def test_a_model_that_takes_long_is_not_cut_for_its_borders() -> None:
    def refused(placements: Sequence[Placement]) -> list[Outcome]:
        raise AssertionError(placements)

    baseline_ms = {(backend, "default"): 1.01 * SLOW_MODEL.number for backend in SLOWNESS}
    surveyed(meter_of(), baseline_ms=baseline_ms, cuts=refused)


BOTH = 0b11 << (SIZE - 2)


def rewritten(names: Iterable[str]) -> list[Match]:
    return [Match(BOTH, name, "default~r", base="default", edits=(("r", BOTH),)) for name in names]


def test_a_profile_tells_what_is_rewritten_too() -> None:
    meter = meter_of()
    _, space = surveyed(meter, [*MATCHES, *rewritten(SLOWNESS)], PROFILED)
    assert not meter.asked
    assert space.cost.match_ms[len(MATCHES)] == pytest.approx(true_ms(Match(BOTH, "quick")) / 4, rel=0.01)
    assert len(MATCHES) in cheapest_covers(space).covers[0].matches
    assert ("quick", "default~r") not in space.cost.borders


def profiled(matches: Sequence[Match], **more: Any) -> tuple[KnownCosts, list[ProfileRequest], int]:
    """What is known of ``matches`` when the needed regions were profiled; all regions in their order; the number of
    those that are needed."""
    asked: list[tuple[list[ProfileRequest], int]] = []

    def profiler(requests: Sequence[ProfileRequest], needed: int, over: Callable[[], bool]) -> Iterator[Profiled]:
        asked.append((list(requests), needed))
        return profile(requests[:needed], needed, over)

    meter: Any = meter_of()
    known = profile_engines(CostScope(GRAPH, tuple(matches), PROFILED, {}, **more), meter, profiler, lambda _: None)
    return known, *asked[0]


def variant_of(name: str, backend: str = "quick", base: str = "default") -> list[Match]:
    return [Match(1 << node, backend, name, base=base) for node in range(SIZE)]


ALONE_MS = {(name, "default"): slowness for name, slowness in SLOWNESS.items()}


def test_a_rewritten_model_is_profiled_before_one_of_a_library_that_is_far_behind() -> None:
    _, asked, needed = profiled([*MATCHES, *rewritten(SLOWNESS)], baseline_ms=ALONE_MS)
    near = [(name, rewritten) for rewritten in (False, True) for name in ("quick", "narrow")]
    assert [(one.engine[0], bool(one.sites)) for one in asked] == [*near, ("slow", False), ("slow", True)]
    assert needed == 2, "the near ones, not rewritten"


def test_engines_of_measured_placements_are_profiled_first_whatever_time_it_takes() -> None:
    matches = [*MATCHES, *variant_of("tiny", "slow")]
    measured = {index: 0.1 for index, match in enumerate(matches) if match.backend != "narrow"}
    known, asked, needed = profiled(matches, baseline_ms=ALONE_MS, measured=measured)
    assert {one.engine for one in asked[:needed]} == {SLOW, ("slow", "tiny"), QUICK}
    assert not known.late


@pytest.mark.parametrize("base", ["default", ""])
def test_what_never_ran_the_whole_model_is_profiled_in_turn_with_the_best_of_its_family(base: str) -> None:
    matches = [*MATCHES, *variant_of("half", base=base), *variant_of("tiny")]
    _, asked, needed = profiled(matches, baseline_ms={QUICK: 9.0, ("quick", "half"): 4.0, SLOW: 9.0})
    assert {one.engine[1] for one in asked[:needed]} == ({"half", "tiny"} if base else {"half"})


@pytest.mark.parametrize("answer", [None, NO, "fails standalone"], ids=["late", "not profiled", "part fails"])
def test_matches_of_measured_placements_are_in_the_space_whatever_else_is_known(answer: Failure | str | None) -> None:
    matches = (*MATCHES, *variant_of("tiny"))
    measured = {len(MATCHES) + node: 0.5 for node in range(2)}

    def profiler(requests: Sequence[ProfileRequest], needed: int, over: Callable[[], bool]) -> Iterator[Profiled]:
        for request, times in profile(requests, needed, over):
            if request.engine[1] != "tiny":
                yield request, times
            elif isinstance(answer, Failure):
                yield request, answer

    meter: Any = Meter(GRAPH, lambda match: NO if match.variant == "tiny" else true_ms(match))
    scope = CostScope(GRAPH, matches, PROFILED, {}, measured=measured)
    known = profile_engines(scope, meter, profiler, lambda _: None)
    known = time_kernels(known, Costs(meter, matches, 4.0), lambda _: None)
    if isinstance(answer, str):
        known = replace(known, failures={index: NO for index in range(len(MATCHES), len(matches))})
    space = known.space()
    tiny = [index for index in space.usable if space.matches[index].variant == "tiny"]
    assert tiny == list(measured)
    assert [space.cost.match_ms[index] for index in tiny] == [0.5, 0.5]
    assert space.cost.estimated >= set(tiny)


@pytest.mark.parametrize("before", [False, True], ids=["new", "timed alone by an earlier run"])
def test_an_engine_whose_profile_came_too_late_takes_no_part_where_its_family_has_one(before: bool) -> None:
    late = [*variant_of("tiny"), Match(BOTH, "quick", "tiny~r", base="default", edits=(("r", BOTH),))]

    def told(requests: Sequence[ProfileRequest], needed: int, over: Callable[[], bool]) -> Iterator[Profiled]:
        return profile([one for one in requests if one.engine[1] != "tiny"], needed, over)

    meter: Any = Meter(GRAPH, true_ms, lambda match: before and match.variant != "default")
    matches = (*MATCHES, *late)
    known = profile_engines(CostScope(GRAPH, matches, PROFILED, {}), meter, told, lambda _: None)
    space = time_kernels(known, Costs(meter, matches, 4.0), lambda _: None).space()
    assert not meter.asked, "alone its kernels would look cheaper than they are"
    usable = {space.matches[match].engine for match in space.usable}
    assert usable == {(name, "default") for name in SLOWNESS}


def test_what_is_rewritten_is_timed_alone_where_no_profile_tells() -> None:
    meter: Any = Meter(GRAPH, lambda match: true_ms(match) / (4 if match.rewrites else 1))
    survey, space = surveyed(meter, [*MATCHES, *rewritten(SLOWNESS)])
    assert survey.table().standalone_ms[len(MATCHES)] == true_ms(Match(BOTH, "quick")) / 4
    assert len(MATCHES) in cheapest_covers(space).covers[0].matches


BLOCKS = [sum(1 << node for node in range(first, min(first + 8, SIZE))) for first in range(0, SIZE, 8)]
ON_OTHERS = [Match(nodes, "standing", way) for nodes in BLOCKS for way in ("good", "bad")]


def meter_of_others(good: float, bad: float) -> Meter:
    """What stands on others takes so many times what the quickest takes operator by operator."""
    factors = {"good": good, "bad": bad}

    def took(match: Match) -> float:
        if match.backend != "standing":
            return true_ms(match)
        return factors[match.variant] * sum(true_ms(Match(1 << node, "quick")) for node in members(match.nodes))

    return Meter(GRAPH, took)


def surveyed_with_others(meter: Meter) -> SearchSpace:
    class Standing(StandingBackend):
        def variant(self, name: str) -> Variant:
            return Variant(name)

    backends: Any = {name: Backend() for name in SLOWNESS} | {"standing": Standing()}
    return surveyed(meter, [*MATCHES, *ON_OTHERS], backends)[1]


def test_regions_on_other_backends_are_timed_behind_the_kernels_the_largest_first() -> None:
    meter = meter_of_others(0.7, 0.8)
    space = surveyed_with_others(meter)
    asked = [match for match in meter.asked if match.backend == "standing"]
    assert set(asked) == set(ON_OTHERS)
    assert meter.asked[-len(asked) :] == asked
    work = [multiply_adds(GRAPH, match.nodes) for match in asked]
    assert work == sorted(work, reverse=True)
    chosen = map(space.matches.__getitem__, cheapest_covers(space).covers[0].matches)
    assert {match.variant for match in chosen if match.backend == "standing"} == {"good"}


def test_parts_of_a_kernel_are_timed_for_what_each_is_worth_where_it_is_on_its_own() -> None:
    """Joined, two operators take as long here as there; apart, each engine is quick at one of them."""
    both = 0b11
    matches = [Match(nodes, name) for name in ("quick", "slow") for nodes in (*(1 << n for n in range(SIZE)), both)]
    took = {("quick", 1): 9.0, ("slow", 2): 9.0, ("quick", both): 10.0, ("slow", both): 10.0}
    meter: Any = Meter(GRAPH, lambda match: took.get((match.backend, match.nodes), 1.0))
    scope = CostScope(GRAPH, tuple(matches), BACKENDS, {})
    known = time_kernels(KnownCosts(scope), Costs(meter, matches, 4.0), lambda _: None)
    assert known.node_ms(QUICK)[0] == pytest.approx(9.0)
    assert known.node_ms(SLOW)[0] == pytest.approx(1.0)
