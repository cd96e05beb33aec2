"""Which variants become matches: those that the tolerance leaves room for."""

from __future__ import annotations

import pytest

from collage_evo.backends.openvino import OpenVinoBackend
from collage_evo.graph.read import build_graph
from collage_evo.patterns.enumerate import enumerate_matches
from collage_evo.testing.cases import CASES


@pytest.mark.parametrize(("tolerance", "variants"), [(1e-3, {"default"}), (1e-2, {"default", "bf16"})])
def test_a_lower_precision_takes_part_when_the_tolerance_is_no_smaller_than_its_roundoff(
    tolerance: float, variants: set[str]
) -> None:
    graph = build_graph(CASES["conv_relu"]())
    found = enumerate_matches(graph, [OpenVinoBackend()], tolerance).matches
    assert {match.variant for match in found} == variants
    light = {match.variant for match in found if match.nodes == 0b10}
    assert light == {"default"}
