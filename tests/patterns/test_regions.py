"""Maximal regions are as large as they can be; their blocks lie between points that every path passes."""

from __future__ import annotations

from hypothesis import given

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, members
from collage_evo.patterns.regions import Regions, blocks_of, maximal_regions
from tests.patterns.strategies import supported_parts
from tests.support.models import chain


@given(supported_parts(16))
def test_regions_are_convex_pieces_that_hold_every_supported_node_and_cannot_grow(
    part: tuple[Graph, NodeSet],
) -> None:
    graph, supported = part
    regions = maximal_regions(graph, supported)
    covered = 0
    for region in regions:
        covered |= region
        assert graph.is_connected(region)
        assert graph.is_convex(region)
        for index in members(supported & ~region):
            larger = region | 1 << index
            hull = larger | graph.ancestors(larger) & graph.descendants(larger)
            assert hull & ~supported or not graph.is_connected(hull)
    assert covered == supported


@given(supported_parts(16))
def test_blocks_cover_a_region_and_end_where_all_its_paths_pass(part: tuple[Graph, NodeSet]) -> None:
    graph, supported = part
    for region in maximal_regions(graph, supported):
        blocks = blocks_of(graph, region)
        assert sum(blocks) == region
        ends = [max(members(block)) for block in blocks[:-1]]
        edges = [(i, j) for i in members(region) for j in members(graph.succ[i] & region)]
        for index in members(region & ~(1 << max(members(region)))):
            comparable = not region & ~(graph.anc[index] | graph.desc[index] | 1 << index)
            past = any(i < index < j for i, j in edges)
            assert (index in ends) == (comparable and not past)


def test_a_region_its_halves_and_quarters() -> None:
    graph = build_graph(chain(8))
    found = [nodes.bit_count() for nodes in Regions(halvings=2).find(graph, graph.all_nodes)]
    assert found == [16, 8, 8, 4, 4, 4, 4]
    split = list(Regions(halvings=0).find(graph, graph.all_nodes & ~(1 << 4)))
    assert [nodes.bit_count() for nodes in split] == [4, 11]
