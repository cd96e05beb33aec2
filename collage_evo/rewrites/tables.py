"""Rewrite ``tabled-indices``: a row-by-row computation on only an index, as a lookup in a table of its results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.graph import OPAQUE, Graph, GraphCache, Node, NodeSet, members, node_set
from collage_evo.graph.ir.operators import ELEMENTWISE
from collage_evo.graph.reference.reference import Reference
from collage_evo.rewrites.common import reshape, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

_SINCE = 12
"""The version from which Clip takes integers."""
_MOST = 2**18
"""Elements of a table that is always small enough, 1 MiB in float32; a larger one is no larger than its result."""
_TIMES = 64
"""Most rows of a table as a multiple of the model's own: its operators run so often to make it. Chosen."""
_MOST_KINDS = 4096
"""Longest one-hot row: for longer ones tables are too large except for narrow results, and here rows are written
out."""
_INDEX_TYPES = ("int32", "int64")
_BY_ROW = ELEMENTWISE - {"BatchNormalization"}
"""Elementwise operators; a normalisation by channels is none of rows."""


@dataclass(frozen=True)
class _Lookup:
    """An operator that makes one row for each element of an index.

    Attributes:
        node: the operator.
        index: the tensor of row numbers.
        first: the least index with its own row, the next ones in order; None if ``rows`` is a table of the model,
            indexed as by Gather.
        rows: a row for each index; with ``first`` also one at each end, for all indices below and above.
    """

    node: Node
    index: str
    first: int | None
    rows: np.ndarray


class TabledIndices:
    """A row of an embedding or a one-hot row, and the computation on each row by itself: products by constant
    weights, elementwise operators. There are as many results as indices, so compilation computes them once, and the
    rewritten model looks them up.

    Models from JAX and TensorFlow have their first layer as a product with a one-hot matrix.
    """

    name = "tabled-indices"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        if Draft(graph).opset < _SINCE:
            return
        lookups = ((node, _lookup(graph, node)) for node in graph.nodes)
        rowwise = ((lookup, _rowwise(graph, node)) for node, lookup in lookups if lookup is not None)
        sites = {nodes for lookup, nodes in rowwise if _worth(graph, lookup, nodes)}
        yield from sorted(sites, key=lambda nodes: -nodes.bit_count())

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        lookup = _lookup(graph, graph.nodes[next(members(nodes))])
        assert lookup is not None
        draft, index = Draft(graph), lookup.index
        if lookup.first is not None:
            index = reshape(draft, index, graph.tensors[lookup.node.outputs[0]].shape[:-1])
            kind = np.dtype(graph.tensors[lookup.index].dtype).type
            bounds = [draft.constant(np.array(bound, kind)) for bound in (0, len(lookup.rows) - 1)]
            index = draft.node("Sub", [index, draft.constant(np.array(lookup.first - 1, kind))])
            index = draft.node("Clip", [index, *bounds])
        for output, table in _tables(graph, nodes).items():
            draft.node("Gather", [draft.constant(table), index], output, axis=0)
        return draft.finished()


def _lookup(graph: Graph, node: Node) -> _Lookup | None:
    """``node`` as a lookup; None if it is none, or its rows are unknown before a run."""
    for op_type, parse in (("Equal", _compared), ("OneHot", _one_hot), ("Gather", _gathered)):
        if standard(node, op_type) and graph.tensors[node.outputs[0]].static:
            lookup = parse(graph, node)
            if lookup is None or graph.tensors[lookup.index].dtype not in _INDEX_TYPES:
                return None
            return lookup if lookup.rows.size and math.prod(graph.tensors[node.outputs[0]].shape) else None
    return None


def _compared(graph: Graph, node: Node) -> _Lookup | None:
    """Equal of an index [..., 1] and successive numbers [..., 1, N]."""
    for index, numbers in (node.inputs, node.inputs[::-1]):
        values = graph.constants.get(numbers)
        if values is None or index in graph.constants or values.ndim < 1 or values.size != values.shape[-1]:
            continue
        shape, output_shape = graph.tensors[index].shape, graph.tensors[node.outputs[0]].shape
        steps = np.diff(values.ravel().astype(np.int64))
        if shape == (*output_shape[:-1], 1) and 1 < values.size <= _MOST_KINDS and (steps == 1).all():
            row = np.eye(values.size, dtype=bool)
            none = np.zeros((1, values.size), bool)
            return _Lookup(node, index, int(values.ravel()[0]), np.concatenate([none, row, none]))
    return None


def _one_hot(graph: Graph, node: Node) -> _Lookup | None:
    """OneHot along the last axis, of a constant depth and constant values."""
    depth, values = (graph.constants.get(name) for name in node.inputs[1:3])
    rank = len(graph.tensors[node.outputs[0]].shape)
    if depth is None or values is None or node.attributes.get("axis", -1) not in (-1, rank - 1):
        return None
    if node.inputs[0] in graph.constants:
        return None
    count, (off, on) = int(depth.reshape(())), values
    if count > _MOST_KINDS:
        return None
    rows = np.where(np.eye(count, dtype=bool), on, off).astype(values.dtype)
    none = np.full((1, count), off, values.dtype)
    return _Lookup(node, node.inputs[0], -count, np.concatenate([none, rows, rows, none]))


def _gathered(graph: Graph, node: Node) -> _Lookup | None:
    """Gather of rows of a constant matrix."""
    table = graph.constants.get(node.inputs[0])
    if table is None or table.ndim != 2 or node.attributes.get("axis", 0) not in (0, -2):
        return None
    return None if node.inputs[1] in graph.constants else _Lookup(node, node.inputs[1], None, table)


def _rowwise(graph: Graph, start: Node) -> NodeSet:
    """``start`` and all operators behind it that read only rows and constants and make rows.

    The set is convex: no member reads an outside reader of a member.
    """
    before, rows, inside = graph.tensors[start.outputs[0]].shape[:-1], {start.outputs[0]}, [start.index]
    for node in graph.nodes[start.index + 1 :]:
        read = [name for name in node.inputs if name in rows]
        others = [name for name in node.inputs if name and name not in rows]
        if not read or any(name not in graph.constants for name in others) or len(node.outputs) != 1:
            continue
        output = graph.tensors[node.outputs[0]]
        if output.dtype != OPAQUE and output.shape[:-1] == before and _by_row(graph, node, rows):
            rows.add(node.outputs[0])
            inside.append(node.index)
    return node_set(inside)


def _by_row(graph: Graph, node: Node, rows: set[str]) -> bool:
    """Whether each row of the output of ``node`` depends on the same row of its inputs in ``rows``."""
    if standard(node, "MatMul"):
        weights = graph.constants.get(node.inputs[1])
        return node.inputs[0] in rows and weights is not None and weights.ndim == 2
    if not standard(node, node.op_type) or node.op_type not in _BY_ROW:
        return False
    constants = [graph.constants[name].shape for name in node.inputs if name in graph.constants]
    return all(math.prod(shape[:-1]) == 1 for shape in constants)


def _worth(graph: Graph, lookup: _Lookup, nodes: NodeSet) -> bool:
    """Whether the rewrite removes products, and the tables are small."""
    if not any(graph.nodes[index].op_type == "MatMul" for index in members(nodes)):
        return False
    places = math.prod(graph.tensors[lookup.node.outputs[0]].shape[:-1])
    widths = [graph.tensors[name].shape[-1] for name in graph.boundary(nodes)[1]]
    return len(lookup.rows) <= _TIMES * places and len(lookup.rows) * sum(widths) <= max(_MOST, places * sum(widths))


@GraphCache
def _tables(graph: Graph, nodes: NodeSet) -> dict[str, np.ndarray]:
    """Tables [rows, width] of each output of ``nodes`` by row of the lookup. Computed once a graph."""
    lookup = _lookup(graph, graph.nodes[next(members(nodes))])
    assert lookup is not None
    inner, first = nodes & ~(1 << lookup.node.index), lookup.node.outputs[0]
    shape, leaving = graph.tensors[first].shape, graph.boundary(nodes)[1]
    model, results = extract(graph, inner), graph.boundary(inner)[1]
    input_name = model.graph.input[0].name
    reference, places = Reference(model), math.prod(shape[:-1])
    tables: dict[str, list[np.ndarray]] = {name: [] for name in leaving}
    for start in range(0, len(lookup.rows), places):
        rows = lookup.rows[start : start + places]
        padded = np.concatenate([rows, np.zeros((places - len(rows), *rows.shape[1:]), rows.dtype)])
        outputs = reference.run({input_name: padded.reshape(shape)})
        by_name = {first: padded, **dict(zip(results, outputs, strict=True))}
        for name in leaving:
            tables[name].append(by_name[name].reshape(places, -1)[: len(rows)])
    return {name: np.concatenate(parts) for name, parts in tables.items()}
