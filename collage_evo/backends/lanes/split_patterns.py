"""Pattern rules: the stretches of a model that are worth cutting along a dimension, few enough to try each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from collage_evo.backends.lanes.estimate import MACS_PER_MS
from collage_evo.backends.lanes.spans import AXES
from collage_evo.backends.lanes.split import refusal
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.operators import ELEMENTWISE, HEAVY
from collage_evo.graph.roofline import multiply_adds
from collage_evo.patterns.language import Pattern
from collage_evo.patterns.regions import blocks_of, maximal_regions

LANES = 2
"""What is proposed can be cut for so many. A target with more may refuse it when it is built; what only another
number of lanes can share, such as three heads, is not proposed."""
LEAST_WORK = int(0.1 * MACS_PER_MS)
"""Multiply-adds that are worth a meeting of lanes: 0.1 ms of a core by the estimate, a few times what it takes to
wake a lane (``crew.py``)."""
HALVINGS = 2
"""How often a stretch is halved."""
MOST = 32
"""Proposals of one kind for a model; those of the most work. As the one above, a bound on what a search measures."""
CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PRODUCTS = frozenset({"MatMul", "Gemm"})


def split_patterns() -> tuple[Stretches, ...]:
    """What is proposed for lanes that share each operator of a region.

    Rows before channels, since a stretch of several convolutions has one meeting; channels where there is one only.
    Heads of attention before positions, since keys and values of all positions are needed at each.
    """
    rows = Stretches("rows", CONVOLUTIONS, fewest=2)
    heads = Stretches("columns", PRODUCTS, fewest=2, patience=24)
    return (
        rows,
        Stretches("channels", CONVOLUTIONS, elsewhere=rows),
        heads,
        Stretches("positions", PRODUCTS, elsewhere=heads),
        Stretches("samples", HEAVY),
    )


def split_kinds(graph: Graph, nodes: NodeSet) -> tuple[str, ...]:
    """The kinds of split that ``nodes``, proposed by whatever pattern, are worth trying with.

    Of two that cut all outputs along the same axes, such as positions and samples of matrices, the first.
    """
    kinds: dict[tuple[int, ...], str] = {}
    ranks = [len(graph.tensors[name].shape) for name in graph.boundary(nodes)[1]]
    for pattern in split_patterns():
        second = pattern.elsewhere is not None and pattern.elsewhere.kind in kinds.values()
        if not second and pattern.pays(graph, nodes):
            kinds.setdefault(tuple(AXES[pattern.kind] % rank for rank in ranks), pattern.kind)
    return tuple(kinds.values())


@dataclass(frozen=True)
class Stretches(Pattern):
    """The longest stretches of a model that can be cut by ``kind``, and their halves and quarters.

    A stretch ends where more operators could not be cut with it, or would make what both lanes compute too large a
    share.

    Attributes:
        kind: of the split.
        heavy: operators of which it has ``fewest`` or more.
        patience: it may grow by so many units that cannot be cut before one that makes it whole again, as the
            product of queries and keys does after both.
        elsewhere: nothing that this pattern's stretches hold is taken.
    """

    kind: str
    heavy: frozenset[str]
    fewest: int = 1
    patience: int = 4
    elsewhere: Stretches | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"split by {self.kind}")

    def find(self, graph: Graph, supported: NodeSet) -> Iterator[NodeSet]:
        found = {
            part: None
            for stretch in self.stretches(graph, supported)
            for part in _parts(stretch)
            if self.pays(graph, part)
        }
        chosen = sorted(found, key=lambda nodes: -multiply_adds(graph, nodes))[:MOST]
        yield from (nodes for nodes in found if nodes in chosen)

    def why_not(self, graph: Graph, supported: NodeSet, index: int) -> str:
        reason = super().why_not(graph, supported, index)
        return f"no stretch around it is worth cutting by {self.kind}" if reason else ""

    def stretches(self, graph: Graph, supported: NodeSet) -> Iterator[Sequence[NodeSet]]:
        """Each as its units, one after the other."""
        if self.elsewhere:
            for stretch in self.elsewhere.stretches(graph, supported):
                supported &= ~reduce(or_, stretch)
        for region in maximal_regions(graph, supported):
            if self._heavy(graph, region) < self.fewest:
                continue
            units = _units(graph, region, self.kind)
            first = 0
            while first < len(units):
                size = self._reach(graph, units[first:])
                if size and self.pays(graph, reduce(or_, units[first : first + size])):
                    yield units[first : first + size]
                first += max(1, size)

    def _reach(self, graph: Graph, units: Sequence[NodeSet]) -> int:
        """How many of the first units make the longest stretch that can be cut."""
        reach = 0
        nodes = 0
        for number, unit in enumerate(units, 1):
            nodes |= unit
            if number > reach + self.patience + 1:
                break
            if graph.is_connected(nodes) and not refusal(graph, nodes, LANES, self.kind):
                reach = number
        return reach

    def _heavy(self, graph: Graph, nodes: NodeSet) -> int:
        return sum(graph.nodes[index].op_type in self.heavy for index in members(nodes))

    def pays(self, graph: Graph, nodes: NodeSet) -> bool:
        """Whether it can be cut, and is worth a meeting of lanes."""
        return (
            self._heavy(graph, nodes) >= self.fewest
            and multiply_adds(graph, nodes) >= LEAST_WORK
            and graph.is_connected(nodes)
            and not refusal(graph, nodes, LANES, self.kind)
        )


def _units(graph: Graph, region: NodeSet, kind: str) -> list[NodeSet]:
    """Blocks between points that all paths pass, in order; single operators of those that cannot be cut.

    Elementwise operators stay with what comes before them, so that libraries can fuse the two.
    """
    units: list[NodeSet] = []
    for block in blocks_of(graph, region):
        whole = not refusal(graph, block, LANES, kind)
        for unit in (block,) if whole else (1 << index for index in members(block)):
            follows = all(graph.nodes[index].op_type in ELEMENTWISE for index in members(unit))
            if units and follows and graph.is_connected(units[-1] | unit):
                units[-1] |= unit
            else:
                units.append(unit)
    return units


def _parts(units: Sequence[NodeSet]) -> Iterator[NodeSet]:
    """All of the units, halves, quarters ..."""
    for depth in range(HALVINGS + 1):
        number = 2**depth
        edges = [round(part * len(units) / number) for part in range(number + 1)]
        for part in range(number):
            if edges[part] < edges[part + 1]:
                yield reduce(or_, units[edges[part] : edges[part + 1]])
