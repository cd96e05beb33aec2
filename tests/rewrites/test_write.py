"""What a region is made into where something is rewritten, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, node_set
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder
from collage_evo.rewrites.joined_products import JoinedProducts
from collage_evo.rewrites.rewrite import Draft, Replacement
from collage_evo.rewrites.write import rewriting_key, write_rewrites
from tests.rewrites.conftest import Offer
from tests.support.rewrites.check import rewrite_problems

NAME = "joined-products"
RANDOM = np.random.default_rng(0)


def module(b: Builder, x: str, width: int, made: int = 3) -> str:
    """Two products by the same weights with a Relu each, and one by other weights; joined."""
    same, other = (b.const(RANDOM.standard_normal((width, made)).astype(np.float32)) for _ in range(2))
    ends = [b.op("Relu", b.op("MatMul", y, same)) for y in (x, b.op("Tanh", x))]
    return b.op("Concat", *ends, b.op("MatMul", x, other), axis=1)


def two_modules() -> Graph:
    b = Builder("modules")
    first = module(b, b.op("Sigmoid", b.input("x", (1, 40))), 40)
    return build_graph(b.model(b.op("Sigmoid", module(b, first, 9))))


GRAPH = two_modules()
SITES = tuple((NAME, site) for site in JoinedProducts().sites(GRAPH))


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def error(one: onnx.ModelProto, other: onnx.ModelProto) -> float:
    feeds = random_inputs(build_graph(other), 0)
    return relative_error(plain(Reference(one).run(feeds)), plain(Reference(other).run(feeds))).relative


def test_several_places_of_one_region_are_rewritten() -> None:
    assert len(SITES) == 2
    written = write_rewrites(GRAPH, GRAPH.all_nodes, SITES)
    original = extract(GRAPH, GRAPH.all_nodes)
    assert operators(original).count("MatMul") == 6
    assert operators(written).count("MatMul") == 4
    assert operators(written).count("Split") == 2
    assert error(written, original) < 1e-5
    assert [v.name for v in written.graph.input] == [v.name for v in original.graph.input]
    declared = {value.name for value in (*written.graph.value_info, *written.graph.output)}
    assert declared == {name for node in written.graph.node for name in node.output}
    used = {name for node in written.graph.node for name in node.input}
    assert {tensor.name for tensor in written.graph.initializer} <= used


def test_equal_regions_give_equal_models_and_keys_wherever_they_stand() -> None:
    b = Builder("twice")
    sums = []
    for name in "xy":
        x, weights = b.input(name, (1, 4)), b.const(np.ones((4, 3), np.float32))
        ends = [b.op("MatMul", b.op(op_type, x), weights) for op_type in ("Relu", "Tanh")]
        sums.append(b.op("Concat", *ends, axis=1))
    graph = build_graph(b.model(b.op("Add", *sums)))
    one, other = JoinedProducts().sites(graph)
    models = [write_rewrites(graph, site, ((NAME, site),)).SerializeToString() for site in (one, other)]
    assert models[0] == models[1]
    assert rewriting_key(graph, one, ((NAME, one),)) == rewriting_key(graph, other, ((NAME, other),))


def test_the_key_tells_what_is_rewritten_and_how(offer: Offer) -> None:
    both = rewriting_key(GRAPH, GRAPH.all_nodes, SITES)
    assert len({both, *(rewriting_key(GRAPH, GRAPH.all_nodes, (site,)) for site in SITES)}) == 3
    keys = set()
    for rewrite in (Wrong(), Wrong(make="Min"), Wrong(scale=1.0)):
        offer(rewrite)
        graph = two_modules()
        keys.add(rewriting_key(graph, graph.all_nodes, (("wrong", next(rewrite.sites(graph))),)))
    assert len(keys) == 3


@dataclass
class Wrong:
    """Rewrites each Relu as a maximum, and may do so wrongly."""

    name: str = "wrong"
    scale: float = 1.001
    output: str = ""
    inputs: tuple[str, ...] = ()
    make: str = "Max"
    own: dict[str, np.ndarray] = field(default_factory=dict)

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        for node in graph.nodes:
            if node.op_type == "Relu":
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        draft = Draft(graph)
        node = graph.nodes[(nodes & -nodes).bit_length() - 1]
        scaled = draft.node("Mul", [node.inputs[0], draft.constant(np.array(self.scale, np.float32))])
        zero = draft.constant(np.array(0.0, np.float32))
        draft.node(self.make, [*(self.inputs or (scaled,)), zero], self.output or node.outputs[0])
        done = draft.finished()
        return replace(done, constants={**done.constants, **self.own})


@pytest.mark.parametrize(
    ("rewrite", "words"),
    [
        (Wrong(output="nobody_reads"), "does not make"),
        (Wrong(inputs=("nobody_makes",)), "nothing before it makes"),
        (Wrong(own={GRAPH.outputs[0]: np.zeros(1)}), "as another one is called"),
        (Wrong(make="MatMul"), "no ONNX graph"),
        (Wrong(make="Equal"), "it makes bool"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(rewrite: Wrong, words: str, offer: Offer) -> None:
    offer(rewrite)
    site = next(rewrite.sites(GRAPH))
    with pytest.raises(InputError, match=words):
        write_rewrites(GRAPH, GRAPH.all_nodes, ((rewrite.name, site),))


def test_sites_that_overlap_lie_outside_or_are_of_no_rewrite_are_refused() -> None:
    name, site = SITES[0]
    for nodes, sites, words in [
        (GRAPH.all_nodes, ((name, site), (name, site)), "another rewrite replaces"),
        (site & (site - 1), ((name, site),), "not in the region"),
        (GRAPH.all_nodes, (("no-such", site),), "no rewrite 'no-such'"),
    ]:
        with pytest.raises(InputError, match=words):
            write_rewrites(GRAPH, nodes, sites)
    rewriting_key(GRAPH, GRAPH.all_nodes, SITES)  # the next key knows the replacement already
    with pytest.raises(InputError, match="not in the region"):
        rewriting_key(GRAPH, site & (site - 1), SITES[:1])


def test_operators_that_would_wait_for_each_other_are_refused(offer: Offer) -> None:
    @dataclass
    class AtOnce:
        """Computes two sums by one operator that needs the inputs of both."""

        name: str = "at-once"

        def sites(self, graph: Graph) -> Iterator[NodeSet]:
            yield from ()

        def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
            chosen = [node for node in graph.nodes if nodes >> node.index & 1]
            draft = Draft(graph)
            both = draft.node("Concat", [node.inputs[0] for node in chosen], axis=0)
            ends = [node.outputs[0] for node in chosen]
            draft.several("Split", [draft.node("Relu", [both])], ends, axis=0, num_outputs=2)
            return draft.finished()

    offer(AtOnce())
    b = Builder("crossed")
    x, y = b.input("x", (1, 4)), b.input("y", (1, 4))
    first, second = b.op("Relu", b.op("Relu", x, name="a")), b.op("Relu", b.op("Relu", y))
    graph = build_graph(b.model(first, second))
    a, after_a, c, after_c = range(4)
    crossed = (("at-once", node_set((a, after_c))), ("at-once", node_set((after_a, c))))
    assert all(graph.is_convex(site) for _, site in crossed)
    with pytest.raises(InputError, match="wait for each other"):
        write_rewrites(graph, graph.all_nodes, crossed)
    straight = (("at-once", node_set((a, c))), ("at-once", node_set((after_a, after_c))))
    assert error(write_rewrites(graph, graph.all_nodes, straight), extract(graph, graph.all_nodes)) < 1e-6


def test_the_check_finds_wrong_numbers(offer: Offer) -> None:
    for scale, right in ((1.0, True), (1.001, False)):
        offer(Wrong(scale=scale))
        assert (not list(rewrite_problems(Wrong(scale=scale), GRAPH.model))) == right
