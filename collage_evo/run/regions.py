"""Regions of an answer for reports: their engines, operators and precisions."""

from __future__ import annotations

from collections.abc import Sequence

from collage_evo.backends.capabilities import lanes_of
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.select import arithmetics_of
from collage_evo.backends.variants import Arithmetic
from collage_evo.graph.ir import Graph, NodeSet, members
from collage_evo.graph.prepare import PreparedModel
from collage_evo.patterns.match import Region
from collage_evo.precision.transforms.edits import nodes_in
from collage_evo.report.result import Operator, RegionResult, RewrittenNodes
from collage_evo.report.words import arithmetic
from collage_evo.run.searched import Placed
from collage_evo.run.stages.answer import Answer
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.program import Piece


def region_results(answer: Answer, model: PreparedModel, placed: Placed | None) -> list[RegionResult]:
    """The regions of ``answer``; ``placed`` is None if one backend runs the user's own file."""
    pieces = read_artifact(answer.artifact).program.pieces
    spent = answer.region_ms or (None,) * len(pieces)
    if placed is None:
        kinds = [node.op_type for node in model.original.graph.node]
        return [_whole(piece, ms, kinds) for piece, ms in zip(pieces, spent, strict=True)]
    regions = placed.placement.regions  # pieces are in their order
    return [_region(*times, placed.graph) for times in zip(pieces, spent, regions, strict=True)]


def _whole(piece: Piece, ms: float | None, kinds: Sequence[str]) -> RegionResult:
    computes = arithmetic(piece.backend, piece.variant)
    return _operator_times(piece, ms, [Operator(kind, computes.value) for kind in kinds])


def _region(piece: Piece, ms: float | None, region: Region, graph: Graph) -> RegionResult:
    kinds = {i: kind.value for kind, nodes in arithmetics_of(region) for i in members(nodes)}
    operators = [Operator(graph.nodes[i].op_type, kinds[i]) for i in members(region.nodes)]
    rewrites = tuple(RewrittenNodes(name, _names(graph, site)) for name, site in region.rewrites)
    return _operator_times(piece, ms, operators, _names(graph, nodes_in(region.numerics, Arithmetic.INT8)), rewrites)


def _operator_times(
    piece: Piece,
    ms: float | None,
    operators: Sequence[Operator],
    int8: tuple[str, ...] = (),
    rewrites: tuple[RewrittenNodes, ...] = (),
) -> RegionResult:
    device, lanes = device_of(piece.backend, piece.variant), lanes_of(get_backend(piece.backend), piece.directory)
    given = (piece.backend, piece.variant, piece.nodes, ms, int8, device, lanes, rewrites)
    return RegionResult(*given, operators=tuple(operators))


def _names(graph: Graph, nodes: NodeSet) -> tuple[str, ...]:
    return tuple(graph.nodes[node].name for node in members(nodes))
