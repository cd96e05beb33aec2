"""Search spaces made directly: graphs by shape, matches and costs by a seed; no ONNX files, no clock."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper

from collage_evo.genome.cost_model import Border, Copies, CostModel
from collage_evo.genome.space import SearchSpace
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, Node, Tensor, members
from collage_evo.patterns.match import Match, Placement
from tests.support.numerics import in_int8


def make_graph(
    preds: Sequence[Iterable[int]], channels: Sequence[int] | None = None, operators: Sequence[str] | None = None
) -> Graph:
    """Node ``i`` reads its predecessors' outputs ``t<p>``, or the graph input ``x``; sinks are returned.

    By default no two nodes are the same operator: what they cost is drawn for each by itself.
    """
    count = len(preds)
    names = operators or [f"Op{i}" for i in range(count)]
    sizes = channels or [1 + 7 * i % 5 for i in range(count)]
    inputs = [tuple(f"t{p}" for p in sorted(set(before))) or ("x",) for before in preds]
    nodes = tuple(Node(i, f"n{i}", names[i], "", inputs[i], (f"t{i}",), {}) for i in range(count))
    tensors = {"x": Tensor("x", "float32", (1, 25000))}
    tensors |= {f"t{i}": Tensor(f"t{i}", "float32", (sizes[i], 25000)) for i in range(count)}
    read = {name for names in inputs for name in names}
    return Graph(
        model=onnx.ModelProto(),
        nodes=nodes,
        tensors=tensors,
        constants={"w": np.zeros(1, np.float32)},
        inputs=("x",),
        outputs=tuple(f"t{i}" for i in range(count) if f"t{i}" not in read),
    )


def random_graph(rng: random.Random, count: int, reach: int = 4) -> Graph:
    """A random DAG; ``reach`` limits how far back a node reads."""
    preds: list[set[int]] = []
    for i in range(count):
        lowest = max(0, i - reach)
        width = rng.choice((0, 1, 1, 2, 2, 3)) if i else 0
        preds.append({rng.randrange(lowest, i) for _ in range(width)})
    return make_graph(preds)


def resnet_like(blocks: int = 16) -> Graph:
    """Stem, then bottleneck blocks of three conv-relu pairs and a skip; about 7.7 nodes a block."""
    preds: list[list[int]] = [[], [0], [1]]
    last = 2
    for block in range(blocks):
        skip = last
        if block % 4 == 0:
            preds.append([last])
            skip = len(preds) - 1
        for _ in range(3):
            preds.append([last])
            preds.append([len(preds) - 1])
            last = len(preds) - 1
        preds.append([last, skip])
        preds.append([len(preds) - 1])
        last = len(preds) - 1
    preds += [[last], [last + 1], [last + 2]]
    return make_graph(preds)


def nasnet_like(nodes: int, rng: random.Random) -> Graph:
    """Cells that read the two cells before: five blocks of two separable branches added, all concatenated."""
    preds: list[list[int]] = [[], [0]]
    before, last = 0, 1
    while len(preds) < nodes:
        states = []
        for source in (before, last):
            preds += [[source], [len(preds)]]
            states.append(len(preds) - 1)
        blocks = []
        for _ in range(5):
            ends = []
            for source in rng.choices(states[:2], k=2):
                preds += [[source], [len(preds)], [len(preds) + 1]]
                ends.append(len(preds) - 1)
            preds.append(ends)
            blocks.append(len(preds) - 1)
        preds.append(blocks)
        before, last = last, len(preds) - 1
    return make_graph(preds)


def inception_like(modules: int) -> Graph:
    """Stem of three, then modules of four branches (1, 2, 3 and 2 nodes) that are concatenated: nine nodes each."""
    preds: list[list[int]] = [[], [0], [1]]
    last = 2
    for _ in range(modules):
        ends = []
        for depth in (1, 2, 3, 2):
            end = last
            for _ in range(depth):
                preds.append([end])
                end = len(preds) - 1
            ends.append(end)
        preds.append(ends)
        last = len(preds) - 1
    return make_graph(preds)


def chain(nodes: int) -> Graph:
    """One node after the other, as in VGG."""
    return make_graph([[i - 1] if i else [] for i in range(nodes)])


def connected_sets(graph: Graph, start: int, size: int, rng: random.Random) -> int:
    """A random connected convex set around ``start`` of up to ``size`` nodes."""
    nodes = 1 << start
    for _ in range(size - 1):
        around = 0
        for i in members(nodes):
            around |= graph.pred[i] | graph.succ[i]
        grown = [nodes | 1 << i for i in members(around & ~nodes) if graph.is_convex(nodes | 1 << i)]
        if not grown:
            break
        nodes = rng.choice(grown)
    return nodes


def encoder_like(layers: int) -> Graph:
    """Attention of six nodes with a skip, then four with a skip, ``layers`` over; equal layers have equal sizes."""
    preds: list[list[int]] = [[]]
    for _ in range(layers):
        last = len(preds) - 1
        queries, keys, values, scores, weighed, out, skip, up, act, down = range(last + 1, last + 11)
        preds += [[last], [last], [last], [queries, keys], [scores, values], [weighed], [out, last]]
        preds += [[skip], [up], [act], [down, skip]]
    operators = ["Product", "Product", "Product", "Scores", "Weigh", "Product", "Add", "Up", "Gelu", "Down", "Add"]
    return make_graph(preds, [4, *[2, 2, 3, 5, 3, 4, 4, 8, 8, 4, 4] * layers], ["Embed", *operators * layers])


def equal_copies(space: SearchSpace, kinds: Sequence[int], spread: float, rng: random.Random) -> SearchSpace:
    """``space`` where matches that cover nodes of equal kinds on one engine cost the same, within ``spread``."""
    costs: dict[object, float] = {}
    found = []
    for match, ms in zip(space.matches, space.cost.match_ms, strict=True):
        alike = (match.engine, tuple(kinds[node] for node in members(match.nodes)))
        found.append(costs.setdefault(alike, ms) * rng.uniform(1 - spread, 1 + spread))
    return space.costing(replace(space.cost, match_ms=tuple(found)))


FAST = ("b1", "fast")


def make_space(
    graph: Graph,
    rng: random.Random,
    engines: int = 3,
    extra: float = 1.0,
    largest: int = 4,
    border: float = 0.3,
    support: float = 0.9,
    families: bool = False,
    copies: float = 0.0,
    rewrites: int = 0,
) -> SearchSpace:
    """Every engine takes most single nodes; ``extra`` multi-node matches a node; the first takes all.

    ``families``: the second engine and the third, which quantises, are compiled as one. ``copies``: where it is not
    0, some backends (of a single engine, it) work in a device's memory, and copies there and back cost up to so much,
    fixed and a MB. ``rewrites``: so many matches in which two nodes that need not be connected are rewritten.
    """
    names = [("b0", "default"), ("b1", "default"), FAST, ("b2", "default"), ("b3", "default")]
    names = names[:engines]

    def match(nodes: int, name: tuple[str, str]) -> Match:
        if families and name == FAST:
            return Match(nodes, *name, base="default", edits=in_int8(nodes))
        return Match(nodes, *name)

    matches = [
        match(1 << i, name)
        for i in range(len(graph.nodes))
        for k, name in enumerate(names)
        if k == 0 or rng.random() < support
    ]
    for _ in range(int(extra * len(graph.nodes))):
        nodes = connected_sets(graph, rng.randrange(len(graph.nodes)), rng.randint(2, largest), rng)
        matches.append(match(nodes, rng.choice(names)))
    matches += rewritten_matches(graph, rng, names, rewrites)
    costs = tuple(sum(rng.uniform(0.5, 1.5) for _ in members(m.nodes)) * rng.uniform(0.7, 1) for m in matches)
    borders = {name: Border(rng.uniform(0, border), rng.uniform(0, border)) for name in names}
    related = {match.engine: match.family for match in matches if match.rewrites}
    if families and FAST in names:
        related[FAST] = (FAST[0], "default")
    cost = CostModel(costs, borders, families=related)
    if copies:
        dear = Copies(*(Border(rng.uniform(0, copies), rng.uniform(0, copies)) for _ in range(2)))
        engines_ = {match.engine for match in matches} | set(names)
        there = frozenset(name for name in engines_ if name[0] in ("b1", "b3") or len(names) == 1)
        cost = replace(cost, off_host=there, copies=dear)
    return SearchSpace(graph, tuple(matches), cost)


def rewritten_matches(graph: Graph, rng: random.Random, names: Sequence[tuple[str, str]], count: int) -> list[Match]:
    """``count`` matches, or fewer, of two nodes that are rewritten, and of a connected set with one such node."""
    found = []
    for number in range(count):
        backend, variant = rng.choice([name for name in names if name != FAST])
        one, other = (rng.randrange(len(graph.nodes)) for _ in range(2))
        site = 1 << one | 1 << other
        nodes = site if number % 2 else connected_sets(graph, one, 3, rng)
        if graph.is_convex(nodes):
            rewrites = (("rule", site if number % 2 else 1 << one),)
            found.append(Match(nodes, backend, f"{variant}~rule", base=variant, edits=rewrites))
    return found


def small_space(seed: int, copies: float = 0.0) -> SearchSpace:
    """A random space of up to seven nodes, small enough to try everything."""
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 7), reach=7)
    engines, support = rng.randint(1, 3), rng.choice((0.3, 0.7))
    return make_space(
        graph, rng, engines, extra=rng.choice((0.5, 1.5)), border=rng.choice((0, 0.1, 1)), support=support,
        families=bool(seed % 2), copies=copies, rewrites=rng.choice((0, 4)),
    )  # fmt: skip


def check_placement(graph: Graph, placement: Placement) -> None:
    """Exact cover by convex regions, in an order in which each region's inputs are ready; connected ones, but for
    rewrites of operators that only share an input."""
    done = 0
    for region in placement.regions:
        assert not region.nodes & done
        assert region.rewrites or graph.is_connected(region.nodes)
        assert graph.is_convex(region.nodes)
        assert not graph.ancestors(region.nodes) & ~done
        done |= region.nodes
    assert done == graph.all_nodes


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
