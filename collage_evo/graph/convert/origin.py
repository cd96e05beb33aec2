"""Origin of a normalised model's nodes: their names in the user's file, and the fate of the file's nodes.

The passes preserve most tensors' names. Between two tensors that both models have, the nodes in the normalised model
do what the nodes in the file did.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

from collage_evo.graph.convert.static import reads
from collage_evo.graph.ir.graph import post_order
from collage_evo.graph.ir.weights import bodies
from collage_evo.multimap import multimap

_SHAPES = frozenset({"Shape", "Size"})
"""Constant where shapes are static, whatever they read."""
_RANDOM = frozenset({"RandomNormal", "RandomUniform"})
"""Read nothing, and are no constants."""


@dataclass(frozen=True)
class Fate:
    """The fate of one node of the file.

    Attributes:
        outputs: the tensors that it makes.
        nodes: the nodes of the normalised model that do its work now, or that read the constant it became.
        constant: whether it was folded into a constant.
    """

    name: str
    op_type: str
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    constant: bool = False

    @property
    def is_preserved(self) -> bool:
        """Whether a node of the normalised model has its name."""
        return self.name in self.nodes

    @property
    def description(self) -> str:
        """The fate as text that follows the node's name."""
        if self.is_preserved:
            return "is a node of its own"
        if not self.nodes:
            return "was folded into nothing: no output needs it"
        where = ", ".join(self.nodes)
        return f"was folded into a constant, which {where} reads" if self.constant else f"was folded into {where}"


@dataclass(frozen=True)
class Origin:
    """Names for the nodes of a normalised model, in their order, and the fate of every node of the file."""

    names: tuple[str, ...]
    fates: tuple[Fate, ...]

    def find(self, name: str) -> Fate | None:
        """The fate of the node of that name, else of the node that makes the tensor of that name."""
        by_tensor = {output: fate for fate in self.fates for output in fate.outputs}
        return {fate.name: fate for fate in self.fates}.get(name) or by_tensor.get(name)


@dataclass(frozen=True)
class _Made:
    """A node of the file or of a body. The node that has a body reads the body's outputs."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    form: bytes
    """Equal for nodes that compute the same of equal inputs."""


@dataclass(frozen=True)
class _File:
    """All nodes of the user's file, and the names of its weights."""

    nodes: Sequence[_Made]
    weights: frozenset[str]

    @cached_property
    def maker(self) -> dict[str, int]:
        return {name: index for index, node in enumerate(self.nodes) for name in node.outputs}

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        return multimap((name, index) for index, node in enumerate(self.nodes) for name in node.inputs)

    def readers_of(self, index: int) -> list[int]:
        """The nodes that read what a node makes."""
        return [reader for name in self.nodes[index].outputs for reader in self.readers.get(name, ())]

    @cached_property
    def readers_first(self) -> list[int]:
        """All nodes, each after those that read its outputs."""
        # The last reader first: of equal nodes the order decides which represents the others.
        return post_order(range(len(self.nodes)), lambda index: self.readers_of(index)[::-1])

    @cached_property
    def constants(self) -> set[int]:
        """Nodes whose outputs are the same in every run."""
        fixed: set[int] = set()
        same = set(self.weights)
        for index in reversed(self.readers_first):
            node = self.nodes[index]
            if node.op_type in _SHAPES or (node.op_type not in _RANDOM and same.issuperset(node.inputs)):
                fixed.add(index)
                same.update(node.outputs)
        return fixed

    @cached_property
    def twins(self) -> list[int]:
        """For each node a representative of all nodes that compute the same."""
        same: dict[str, str] = {}
        first: dict[tuple[str, tuple[str, ...], bytes, int], int] = {}
        twins = list(range(len(self.nodes)))
        for index in reversed(self.readers_first):
            node = self.nodes[index]
            key = (node.op_type, tuple(same.get(name, name) for name in node.inputs), node.form, len(node.outputs))
            twins[index] = first.setdefault(key, index)
            same |= dict(zip(node.outputs, self.nodes[twins[index]].outputs, strict=True))
        return twins


def node_names(model: onnx.ModelProto) -> tuple[str, ...]:
    """A unique name for each node of the model's graph by which users find it, for example in Netron.

    It is the node's own name, or that of its first output if it has none. Where another node has that name, the
    number of the node in the file is added.
    """
    return tuple(node.name for node in _read_file(model).nodes[: len(model.graph.node)])


def name_nodes(original: onnx.ModelProto, normalised: onnx.ModelProto) -> Origin:
    """Match the nodes of ``normalised`` with those of the file it came from, and name them in place.

    A node that does the work of several gets the name of the one with its operator, else of the last. A node that
    does only a part of another's work is named after that node and its own operator, as ``bn1/Mul``.
    """
    file = _read_file(original)
    nodes = normalised.graph.node
    groups = _groups(nodes, file.maker)
    cones = _cones(file, normalised, groups)
    lenders = _lenders(nodes, groups, cones, file)
    names = _names(nodes, groups, file, lenders)
    preserved = {one: names[index] for index, one in lenders.items()}
    for node, name in zip(nodes, names, strict=True):
        node.name = name
    return Origin(names, tuple(_fates(file, groups, cones, names, preserved)))


def _read_file(model: onnx.ModelProto) -> _File:
    protos = [*model.graph.node]
    for proto in protos:  # grows in the loop: bodies have bodies
        protos += [node for body in bodies(proto) for node in body.node]
    names_in_file = {proto.name for proto in protos if proto.name}
    names_used: set[str] = set()
    nodes = []
    for position, proto in enumerate(protos):
        outputs = tuple(filter(None, proto.output))
        name = proto.name
        if not name and outputs:
            name = outputs[0] if outputs[0] not in names_in_file else ""
        if not name or name in names_used:
            name = f"{name or proto.op_type}#{position}"
        names_used.add(name)
        inside = [value.name for body in bodies(proto) for value in body.output]
        nodes.append(_Made(name, proto.op_type, (*filter(None, proto.input), *inside), outputs, _form(proto)))
    graphs = [model.graph, *(body for proto in protos for body in bodies(proto))]
    return _File(nodes, frozenset(tensor.name for graph in graphs for tensor in graph.initializer))


def _form(node: onnx.NodeProto) -> bytes:
    digest = hashlib.sha256(node.domain.encode())
    for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
        digest.update(attribute.SerializeToString(deterministic=True))
    return digest.digest()


def _groups(nodes: Sequence[onnx.NodeProto], maker: Mapping[str, int]) -> list[list[int]]:
    """Nodes whose outputs are in the file, each with those before it whose outputs are not."""
    readers: dict[str, int] = {}
    group_of: dict[int, list[int]] = {}
    groups: list[list[int]] = []
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        later = [readers[name] for name in node.output if name in readers]
        if later and not any(name in maker for name in node.output):
            group_of[index] = group_of[max(later)]
        else:
            group_of[index] = []
            groups.append(group_of[index])
        group_of[index].insert(0, index)
        for name in reads(node):
            readers.setdefault(name, index)
    return groups[::-1]


def _cones(
    file: _File, normalised: onnx.ModelProto, groups: Sequence[Sequence[int]]
) -> list[list[int]]:
    """For each group the nodes of the file that make its outputs, back to tensors that the normalised model has."""
    graph, maker = normalised.graph, file.maker
    here = {name for node in graph.node for name in node.output}
    here |= {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}

    def before(index: int) -> list[int]:
        return [maker[name] for name in file.nodes[index].inputs if name in maker and name not in here]

    outputs = ([name for index in group for name in graph.node[index].output] for group in groups)
    return [sorted(post_order((maker[name] for name in names if name in maker), before)) for names in outputs]


def _lenders(
    nodes: Sequence[onnx.NodeProto], groups: Sequence[Sequence[int]], cones: Sequence[Sequence[int]], file: _File
) -> dict[int, int]:
    """For nodes of the normalised model the node of the file that gives each its name; each name is used once.

    It is the one that makes its tensor by the same operator; else one with that operator in its group's cone; else
    the one that makes its tensor by any operator.
    """
    makers = [[file.maker[name] for name in node.output if name in file.maker] for node in nodes]
    lenders: dict[int, int] = {}
    lent: set[int] = set()

    def lend(index: int, indices: Iterable[int]) -> None:
        if index not in lenders and (one := next((one for one in indices if one not in lent), None)) is not None:
            lenders[index] = one
            lent.add(one)

    def alike(index: int, indices: Iterable[int]) -> Iterator[int]:
        return (one for one in indices if file.nodes[one].op_type == nodes[index].op_type)

    for index, makers_of_node in enumerate(makers):
        lend(index, alike(index, makers_of_node))
    for group, cone in zip(groups, cones, strict=True):
        for index in group:
            lend(index, alike(index, cone))
        for index in group:
            lend(index, makers[index])
    return lenders


def _names(
    nodes: Sequence[onnx.NodeProto], groups: Sequence[Sequence[int]], file: _File, lenders: Mapping[int, int]
) -> tuple[str, ...]:
    names = {index: file.nodes[one].name for index, one in lenders.items()}
    used = {node.name for node in file.nodes}
    for group in groups:
        owner = next((names[index] for index in reversed(group) if index in names), "")
        for index in group:
            if index not in names:
                stem = f"{owner}/{nodes[index].op_type}" if owner else nodes[index].name or nodes[index].op_type
                names[index] = _free(stem, used)
                used.add(names[index])
    return tuple(names[index] for index in range(len(nodes)))


def _free(stem: str, used: Collection[str]) -> str:
    numbered = (f"{stem}_{number}" for number in itertools.count(2))
    return stem if stem not in used else next(name for name in numbered if name not in used)


def _fates(
    file: _File,
    groups: Sequence[Sequence[int]],
    cones: Sequence[Sequence[int]],
    names: Sequence[str],
    preserved: Mapping[int, str],
) -> list[Fate]:
    pairs = zip(groups, cones, strict=True)
    holders = multimap((one, names[index]) for group, cone in pairs for one in cone for index in group)
    same = {file.twins[one]: name for one, name in preserved.items()}
    nodes_of: dict[int, tuple[str, ...]] = {}
    fates = {}
    for index in file.readers_first:
        node = file.nodes[index]
        if name := preserved.get(index) or same.get(file.twins[index]):
            nodes_of[index] = (name,)
            fates[index] = Fate(node.name, node.op_type, node.outputs, (name,))
            continue
        names_of_readers = (name for reader in file.readers_of(index) for name in nodes_of.get(reader, ()))
        nodes_of[index] = tuple(dict.fromkeys(holders.get(index) or names_of_readers))
        constant = bool(nodes_of[index]) and (index in file.constants or index not in holders)
        fates[index] = Fate(node.name, node.op_type, node.outputs, nodes_of[index], constant)
    return [fates[index] for index in range(len(file.nodes))]
