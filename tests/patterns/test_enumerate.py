"""Enumeration gives every candidate a verdict, says when it was cut, and stays quick on long models."""

from __future__ import annotations

import pytest

from collage_evo.backends import checks
from collage_evo.backends.base import YES, Backend, Probe, no
from collage_evo.backends.enumerate import enumerate_matches
from collage_evo.backends.openvino.backend import OpenVinoBackend
from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.hardware.processor import Processor
from collage_evo.patterns.common import SINGLE, general_patterns
from collage_evo.patterns.language import Pattern
from collage_evo.patterns.matcher import TooManyWays
from collage_evo.testing.cases import CASES
from tests.support.models import chain, random_dag


class Plain(Backend):
    """Takes every operator, but no piece of more than ``most`` of them."""

    name = "plain"

    def __init__(self, most: int = 1000) -> None:
        self.most = most

    def probe(self) -> Probe:
        return Probe(True, "1")

    def patterns(self):
        return general_patterns()

    def supports_node(self, graph, node):
        return YES

    def supports(self, graph, nodes):
        return YES if nodes.bit_count() <= self.most else no("too long")

    def build(self, model, target, variant, workdir):
        raise NotImplementedError

    def load(self, workdir, target, variant, inputs, outputs):
        raise NotImplementedError


def test_every_candidate_is_a_match_or_rejected_with_its_reason() -> None:
    graph = build_graph(chain(6))
    everything = enumerate_matches(graph, [Plain()])
    some = enumerate_matches(graph, [Plain(most=3)])
    assert not everything.rejected
    assert {rejected.reason for rejected in some.rejected} == {"too long"}
    nodes = {match.nodes for match in some.matches} | {rejected.nodes for rejected in some.rejected}
    assert nodes == {match.nodes for match in everything.matches}


@pytest.mark.parametrize("seed", range(5))
def test_matches_are_connected_and_convex(seed: int) -> None:
    graph = build_graph(random_dag(seed, 30))
    for match in enumerate_matches(graph, [Plain()]).matches:
        assert graph.is_connected(match.nodes)
        assert graph.is_convex(match.nodes)


def test_the_bound_is_kept_and_told() -> None:
    found = enumerate_matches(build_graph(chain(10)), [Plain()], max_per_backend=25)
    assert found.cut == ("plain",)
    assert len(found.matches) + len(found.rejected) == 25


def test_a_pattern_that_is_given_up_is_told_and_the_others_go_on() -> None:
    class Endless(Pattern):
        name = "endless"

        def find(self, graph, supported):
            yield 0b11
            raise TooManyWays

    class Patient(Plain):
        def patterns(self):
            return (Endless(), SINGLE)

    found = enumerate_matches(build_graph(chain(1)), [Patient()])
    assert found.cut == ("plain",)
    assert [match.nodes for match in found.matches] == [0b11, 0b01, 0b10]


def test_a_node_that_nobody_takes_is_an_error() -> None:
    class Picky(Plain):
        def supports_node(self, graph, node):
            return no("not today")

    with pytest.raises(InputError, match="not today"):
        enumerate_matches(build_graph(chain(1)), [Picky()])


@pytest.mark.parametrize(
    ("tolerance", "variants"),
    [(1e-4, {"default"}), (1e-3, {"default", "f16"}), (1e-2, {"default", "f16", "bf16", "bf16-cast"})],
)
def test_a_lower_precision_takes_part_when_the_tolerance_is_no_smaller_than_its_roundoff(
    tolerance: float, variants: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    able = Processor("", "", frozenset({"avx512_bf16", "avx512_fp16"}))
    monkeypatch.setattr(checks, "this_machine", lambda: able)
    found = enumerate_matches(build_graph(CASES["conv_relu"]()), [OpenVinoBackend()], tolerance).matches
    assert {match.variant for match in found} == variants
    assert {match.variant for match in found if match.nodes == 0b10} == variants
