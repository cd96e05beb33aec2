"""What each pattern finds in a small graph."""

from collage_evo.graph.ir import members
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.patterns.language import Block, Chain, Epilogue, Single, Stretch, blocks_of
from collage_evo.testing.models import chain, tiny_branchy, tiny_convnet

GRAPH = build_graph(normalise(tiny_convnet()))


def ops(nodes: int) -> list[str]:
    return [GRAPH.nodes[i].op_type for i in members(nodes)]


def test_single_takes_supported_nodes_of_its_types() -> None:
    found = list(Single(frozenset({"Conv"})).find(GRAPH, GRAPH.all_nodes))
    assert [ops(nodes) for nodes in found] == [["Conv"]] * sum(n.op_type == "Conv" for n in GRAPH.nodes)
    assert not list(Single().find(GRAPH, 0))


def test_epilogue_gives_every_prefix() -> None:
    pattern = Epilogue(frozenset({"Conv"}), frozenset({"Add", "Relu"}), 3)
    found = [sorted(ops(nodes)) for nodes in pattern.find(GRAPH, GRAPH.all_nodes)]
    assert ["Conv", "Relu"] in found
    assert ["Add", "Conv"] in found
    assert ["Add", "Conv", "Relu"] in found


def test_chain_joins_elementwise_neighbours_up_to_its_length() -> None:
    graph = build_graph(chain(6))
    types = frozenset(node.op_type for node in graph.nodes)
    sizes = {nodes.bit_count() for nodes in Chain(types, 4).find(graph, graph.all_nodes)}
    assert sizes == {2, 3, 4}


def test_blocks_cover_the_graph_and_lie_between_points_that_all_paths_pass() -> None:
    graph = build_graph(normalise(tiny_branchy()))
    blocks = blocks_of(graph)
    assert sum(blocks) == graph.all_nodes
    assert max(block.bit_count() for block in blocks) > 2
    assert all(graph.is_convex(block) for block in blocks)


def test_stretches_are_the_whole_its_halves_and_quarters() -> None:
    graph = build_graph(chain(8))
    found = [nodes.bit_count() for nodes in Stretch(halvings=2).find(graph, graph.all_nodes)]
    assert found == [16, 8, 8, 4, 4, 4, 4]
    middle = 1 << 4
    split = list(Stretch(halvings=0).find(graph, graph.all_nodes & ~middle))
    assert [nodes.bit_count() for nodes in split] == [4, 11]


def test_a_block_with_an_unsupported_node_is_not_proposed() -> None:
    found = list(Block().find(GRAPH, GRAPH.all_nodes))
    assert found
    assert not [nodes for nodes in Block().find(GRAPH, GRAPH.all_nodes & ~found[0]) if nodes & found[0]]
