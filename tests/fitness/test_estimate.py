"""What was measured of some kernels says what others take, and how surely."""

import math
from collections.abc import Mapping
from itertools import pairwise

import pytest
from onnx import TensorProto, helper

from collage_evo.fitness.costs.estimate import Estimate, Kernels, Whole
from collage_evo.graph.ir import Graph
from collage_evo.graph.read import build_graph
from collage_evo.graph.roofline import multiply_adds
from collage_evo.patterns.match import Match


def products(widths: list[int]) -> Graph:
    """A chain of matrix products of 8 rows."""
    nodes, weights = [], []
    for k, (into, out) in enumerate(pairwise(widths)):
        weights.append(helper.make_tensor(f"w{k}", TensorProto.FLOAT, (into, out), [0.0] * (into * out)))
        nodes.append(helper.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]))
    last = len(nodes)
    sides = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, (8, widths[k])) for k in (0, last)]
    inside = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, (8, widths[k])) for k in range(1, last)]
    graph = helper.make_graph(nodes, "products", sides[:1], sides[1:], weights, value_info=inside)
    return build_graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


GRAPH = products([4, 8, 8, 16, 16, 32, 32, 64, 64, 128, 128])
ENGINES = ("quick", "slow")
MATCHES = [Match(1 << node, engine) for engine in ENGINES for node in range(10)]


def true_ms(match: Match) -> float:
    """Proportional to the arithmetic; ``slow`` takes five times as long."""
    return multiply_adds(GRAPH, match.nodes) * 1e-5 * (5.0 if match.backend == "slow" else 1.0)


def test_kernels_between_and_beside_those_measured_are_estimated() -> None:
    kernels = Kernels(GRAPH, MATCHES)
    measured = {i: true_ms(MATCHES[i]) for i in (0, 2, 4, 6, 8, 9, 10, 14, 19)}
    estimates = kernels.estimates(measured)
    for index, match in enumerate(MATCHES):
        assert estimates[index].ms == pytest.approx(true_ms(match), rel=0.35)


def test_what_was_measured_is_surer_than_what_is_far_from_it() -> None:
    estimates = Kernels(GRAPH, MATCHES).estimates({0: 1.0, 1: 1.3, 2: 1.1})
    assert estimates[1].spread < estimates[9].spread
    assert all(one.hopeful_ms <= one.ms for one in estimates.values())


def test_what_was_measured_on_the_host_says_nothing_of_a_device() -> None:
    device = (ENGINES[0], "default")
    host = [i for i, match in enumerate(MATCHES) if match.engine != device]
    own = {0: 0.01, 9: 0.02}
    apart = Kernels(GRAPH, MATCHES, {device})
    few, many = (apart.estimates({**own, **dict.fromkeys(some, 50.0)}) for some in (host[:3], host))
    assert few[5].ms < 1.0, "between what was measured there"
    assert few[5].ms == pytest.approx(many[5].ms, rel=0.5), "however much is known of the host"
    together = Kernels(GRAPH, MATCHES).estimates({**own, **dict.fromkeys(host, 50.0)})
    assert together[5].spread < many[5].spread, "where the engines have something in common, the host's times count"


def test_nothing_is_estimated_from_nothing() -> None:
    assert Kernels(GRAPH, MATCHES).estimates({}) == {}
    assert Kernels(GRAPH, []).estimates({}) == {}


def test_a_sample_is_of_kernels_that_are_unlike_each_other() -> None:
    kernels = Kernels(GRAPH, MATCHES)
    chosen = kernels.spread_out(4, taken=[0])
    sizes = [math.log2(multiply_adds(GRAPH, MATCHES[index].nodes)) for index in chosen]
    assert sizes[0] == max(sizes), "the farthest comes first"
    assert len({MATCHES[index].nodes for index in chosen}) == 4
    assert not 1 & sum(MATCHES[index].nodes for index in chosen)


def test_what_is_rewritten_is_not_taken_for_what_it_was() -> None:
    sets = (1 << 7, 1 << 9)
    written = [Match(nodes, "quick", "default~r", base="default", rewrites=(("r", nodes),)) for nodes in sets]
    measured = {i: true_ms(MATCHES[i]) for i in range(20)} | {20: 5 * true_ms(written[0])}
    estimates = Kernels(GRAPH, [*MATCHES, *written]).estimates(measured)
    assert estimates[9].ms == pytest.approx(true_ms(MATCHES[9]), rel=0.2)
    assert estimates[21].ms > 2 * estimates[9].ms


def bent_ms(index: int) -> float:
    """Large products take four times what small ones make one expect."""
    return true_ms(MATCHES[index]) * (4.0 if index % 10 >= 5 else 1.0)


FEW = {index: bent_ms(index) for index in (0, 2, 10, 12)}
"""Two small ones on each engine."""


def whole(engine: str) -> Whole:
    """All ten products together."""
    own = tuple(index for index, match in enumerate(MATCHES) if match.backend == engine)
    return Whole(own, sum(map(bent_ms, own)))


def sum_of(estimates: Mapping[int, Estimate], engine: str) -> float:
    return sum(one.ms for index, one in estimates.items() if MATCHES[index].backend == engine)


def test_estimates_add_up_to_no_less_than_the_whole_took() -> None:
    kernels = Kernels(GRAPH, MATCHES)
    before, after = kernels.estimates(FEW), kernels.estimates(FEW, [whole(engine) for engine in ENGINES])
    for engine in ENGINES:
        true = whole(engine).ms
        assert abs(math.log(sum_of(before, engine) / true)) > 0.3
        assert sum_of(after, engine) == pytest.approx(true, rel=0.2)
    assert all(after[index].spread <= before[index].spread + 1e-9 for index in before)
    assert all(after[index].ms == pytest.approx(before[index].ms, rel=0.1) for index in FEW)


def test_what_one_engine_takes_for_the_whole_says_something_of_another() -> None:
    kernels = Kernels(GRAPH, MATCHES)
    before, after = (sum_of(kernels.estimates(FEW, wholes), "slow") for wholes in ((), [whole("quick")]))
    true = whole("slow").ms
    assert abs(math.log(after / true)) < 0.7 * abs(math.log(before / true))


def test_a_whole_that_took_less_than_expected_changes_nothing() -> None:
    """An engine may save much where it is given all at once."""
    kernels = Kernels(GRAPH, MATCHES)
    before = kernels.estimates(FEW)
    wholes = [Whole(tuple(range(10)), share * sum_of(before, "quick")) for share in (0.1, 0.9)]
    assert kernels.estimates(FEW, wholes) == before


def test_where_all_is_measured_a_whole_changes_nothing() -> None:
    kernels = Kernels(GRAPH, MATCHES)
    measured = {i: true_ms(match) for i, match in enumerate(MATCHES)}
    assert kernels.estimates(measured, [Whole(tuple(range(10)), 1000.0)]) == kernels.estimates(measured)


def test_the_less_is_known_of_a_kernel_the_more_its_mean_is_above_its_median() -> None:
    sure, unsure, unknown = (Estimate(1.0, spread) for spread in (0.0, 0.5, 50.0))
    assert sure.hopeful_ms == sure.expected_ms == 1.0
    assert unsure.hopeful_ms < 1.0 < unsure.expected_ms < unknown.expected_ms < 10.0
