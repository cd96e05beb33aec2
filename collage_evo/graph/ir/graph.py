"""The DAG view of a normalised ONNX model: nodes, tensors, and reachability as bitmasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce, update_wrapper
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np

from collage_evo.codec import As
from collage_evo.multimap import multimap

if TYPE_CHECKING:
    import onnx

P = ParamSpec("P")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

NodeSet = Annotated[int, As(lambda nodes: f"{nodes:x}", lambda text: nodes_from(text))]
"""A set of nodes as a bitmask: bit ``i`` stands for ``graph.nodes[i]``. In files it is hexadecimal: of whole
numbers in decimal Python reads no more than 4300 digits."""

OPAQUE = "opaque"
UNCHECKED_BRANCHES = "collage_evo.unchecked_branches"
"""Key in a normalised model's metadata, present if no check takes both branches of some If."""
COMPOSITE = "collage_evo.composite"
"""The domain of nodes that stand for operators with bodies, or for several with open shapes between them."""


def nodes_from(text: str) -> NodeSet:
    """Parse a set from its hexadecimal ``text``.

    Raises:
        ValueError: ``text`` holds none.
    """
    if (nodes := int(text, 16)) < 0:
        raise ValueError(f"{text!r} is no set of nodes")
    return nodes


def members(nodes: NodeSet) -> Iterator[int]:
    """Indices in ``nodes``, ascending."""
    while nodes:
        low = nodes & -nodes
        yield low.bit_length() - 1
        nodes ^= low


def node_set(indices: Iterable[int]) -> NodeSet:
    """The set that holds ``indices``."""
    return union(1 << index for index in indices)


def union(sets: Iterable[NodeSet]) -> NodeSet:
    """All that is in one of ``sets``."""
    return reduce(or_, sets, 0)


def unions(pairs: Iterable[tuple[K, NodeSet]]) -> dict[K, NodeSet]:
    """The union of the sets of each key in ``pairs`` of key and set."""
    return {key: union(sets) for key, sets in multimap(pairs).items()}


def disjoint(items: Iterable[T], nodes_of: Callable[[T], NodeSet]) -> list[T]:
    """Those of ``items`` that share no node with an earlier one of these."""
    chosen, covered = list[T](), 0
    for item in items:
        if not nodes_of(item) & covered:
            chosen.append(item)
            covered |= nodes_of(item)
    return chosen


def post_order(starts: Iterable[int], following: Callable[[int], Sequence[int]]) -> list[int]:
    """All that can be reached from ``starts``, each after what follows it, as a depth-first walk leaves them."""
    order: list[int] = []
    seen: set[int] = set()
    for start in starts:
        stack = [(start, False)]
        while stack:
            index, finished = stack.pop()
            if finished:
                order.append(index)
            elif index not in seen:
                seen.add(index)
                stack.append((index, True))
                stack.extend((other, False) for other in reversed(following(index)))
    return order


@dataclass(frozen=True)
class Tensor:
    """A value's type: numpy dtype name and shape.

    A size that is not known before a run is -1. The dtype :data:`OPAQUE` stands for everything that is no array of
    numbers: strings, sequences, optional values and maps. ``varies``: in the graph of an open model the axes whose
    size follows the inputs'; ``shape`` has the sizes in the run that was observed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    varies: tuple[int, ...] = ()

    @property
    def static(self) -> bool:
        """Whether memory can be planned for it: it holds numbers and every size is known."""
        return self.dtype != OPAQUE and min(self.shape, default=0) >= 0

    @property
    def opened(self) -> Tensor:
        """The same for inputs of any sizes: with -1 for each that varies."""
        sizes = (-1 if axis in self.varies else size for axis, size in enumerate(self.shape))
        return Tensor(self.name, self.dtype, tuple(sizes)) if self.varies else self

    @property
    def nbytes(self) -> int:
        """Its size in bytes; 0 where that is not known."""
        return 0 if not self.static else math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Node:
    """One ONNX operator. An absent optional input is the empty name.

    Operators that pass tensors without a static shape to each other, and those whose bodies read tensors around them,
    form one node of the domain ``COMPOSITE``: other nodes see only what such a node reads and makes.
    """

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    protos: tuple[onnx.NodeProto, ...] = field(default=(), repr=False, compare=False)
    """The operators that it stands for, in order: a single one, except for composites."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operators that it stands for."""
        return (self.name,) if len(self.protos) < 2 else tuple(proto.name for proto in self.protos)


@dataclass(frozen=True)
class Graph:
    """A normalised model: static shapes, nodes in topological order, constants as initializers."""

    model: onnx.ModelProto
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    results: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Belongs to :class:`GraphCache`."""

    @cached_property
    def producer(self) -> Mapping[str, int]:
        """The node that makes each tensor; none for inputs and constants."""
        return {name: node.index for node in self.nodes for name in node.outputs if name}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """The nodes that read each tensor, ascending; none for a tensor that no node reads."""
        read = ((name, node.index) for node in self.nodes for name in dict.fromkeys(filter(None, node.inputs)))
        return {name: tuple(nodes) for name, nodes in multimap(read).items()}

    @cached_property
    def pred(self) -> tuple[NodeSet, ...]:
        """The direct neighbours before each node."""
        made = self.producer
        return tuple(node_set(made[name] for name in node.inputs if name in made) for node in self.nodes)

    @cached_property
    def succ(self) -> tuple[NodeSet, ...]:
        """The direct neighbours after each node."""
        read = self.consumers
        return tuple(node_set(i for name in node.outputs for i in read.get(name, ())) for node in self.nodes)

    @cached_property
    def anc(self) -> tuple[NodeSet, ...]:
        """All nodes before each node, without itself."""
        return _closure(self.pred, range(len(self.nodes)))

    @cached_property
    def desc(self) -> tuple[NodeSet, ...]:
        """All nodes after each node, without itself."""
        return _closure(self.succ, range(len(self.nodes) - 1, -1, -1))

    @cached_property
    def is_open(self) -> bool:
        """Whether pieces take inputs of other sizes than those that were observed."""
        return any(self.tensors[name].varies for name in self.inputs)

    @cached_property
    def all_nodes(self) -> NodeSet:
        return (1 << len(self.nodes)) - 1

    @cached_property
    def opset(self) -> int:
        """The version of ONNX's own operators; 0 where the model imports none of them."""
        versions = (entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx"))
        return int(next(versions, 0))

    @cached_property
    def has_unchecked_branches(self) -> bool:
        """Whether the model has an If of which the checks take only one branch."""
        return any(entry.key == UNCHECKED_BRANCHES for entry in self.model.metadata_props)

    def ancestors(self, nodes: NodeSet) -> NodeSet:
        """Every node from which some member can be reached, members excluded."""
        return _union(self.anc, nodes) & ~nodes

    def descendants(self, nodes: NodeSet) -> NodeSet:
        """Every node that can be reached from some member, members excluded."""
        return _union(self.desc, nodes) & ~nodes

    def is_convex(self, nodes: NodeSet) -> bool:
        """True when no path leaves ``nodes`` and comes back."""
        return not self.ancestors(nodes) & self.descendants(nodes)

    def is_connected(self, nodes: NodeSet) -> bool:
        """True when ``nodes`` is connected, edges taken without direction; the empty set is not."""
        return bool(nodes) and self.connected_part(nodes) == nodes

    def connected_part(self, nodes: NodeSet) -> NodeSet:
        """The members that are connected with the first of ``nodes`` inside of them."""
        reached = frontier = nodes & -nodes
        while frontier:
            neighbours = _union(self.pred, frontier) | _union(self.succ, frontier)
            frontier = neighbours & nodes & ~reached
            reached |= frontier
        return reached

    def branch(self, node: int) -> NodeSet:
        """The longest path through ``node`` on which nothing forks or joins."""
        path = 1 << node
        for forth, back in ((self.pred, self.succ), (self.succ, self.pred)):
            end = node
            while forth[end].bit_count() == 1:
                end = forth[end].bit_length() - 1
                if back[end].bit_count() != 1:
                    break
                path |= 1 << end
        return path

    def boundary(self, nodes: NodeSet) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tensors that enter ``nodes`` (no constants; by first use) and that leave it (by production)."""
        chosen = [self.nodes[index] for index in members(nodes)]
        made = {name: None for node in chosen for name in node.outputs if name}
        read = {name: None for node in chosen for name in node.inputs if name and name not in made}
        final, readers = set(self.outputs), self.consumers
        leaving = [n for n in made if n in final or any(not nodes >> user & 1 for user in readers.get(n, ()))]
        return tuple(name for name in read if name not in self.constants), tuple(leaving)


def _union(sets: Sequence[NodeSet], nodes: NodeSet) -> NodeSet:
    return union(map(sets.__getitem__, members(nodes)))


def _closure(direct: Sequence[NodeSet], order: Iterable[int]) -> tuple[NodeSet, ...]:
    """All that can be reached along ``direct``; ``order`` visits every neighbour before the node itself."""
    reach = [0] * len(direct)
    for index in order:
        reach[index] = direct[index] | _union(reach, direct[index])
    return tuple(reach)


class GraphCache(Generic[P, T]):
    """A function of a graph, and of further arguments, whose results the graph holds for as long as it exists."""

    def __init__(self, compute: Callable[Concatenate[Graph, P], T]) -> None:
        self._compute = compute
        update_wrapper(self, compute)

    def __call__(self, graph: Graph, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (self, args, *kwargs.items())
        if key not in graph.results:
            graph.results[key] = self._compute(graph, *args, **kwargs)
        result: T = graph.results[key]
        return result

    def put(self, graph: Graph, result: T) -> None:
        """Let ``result`` be that of ``graph`` without further arguments."""
        graph.results[self, ()] = result
