"""The plan of a quantised region: which tensors have quantisers, and their scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.rules import (
    PASSING,
    Ranges,
    correcting_means,
    fused_activation,
    quantised_inputs,
    scale_source,
)
from collage_evo.precision.quantise.scales import Scale, activation_scale, symmetric_scale


@dataclass(frozen=True)
class Plan:
    """Quantisers and scales of a region.

    Attributes:
        reads: for each operator in int8 the positions of inputs that it reads through a quantiser.
        behind: the tensors with a quantiser directly behind their maker: all readers get the rounded values.
        scales: of every tensor that has a quantiser.
        means: of each input channel, for operators in int8 whose bias is corrected.
    """

    reads: Mapping[int, tuple[int, ...]]
    behind: frozenset[str]
    scales: Mapping[str, Scale]
    means: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


def make_plan(graph: Graph, nodes: NodeSet, quantised: NodeSet, ranges: Ranges, form: Int8Form) -> Plan:
    """The plan of quantisers if ``quantised`` of ``nodes`` run in int8.

    Raises:
        InputError: a tensor has no range.
    """
    chosen = [graph.nodes[index] for index in members(nodes & quantised)]
    if not form.calibrated:
        return Plan({node.index: (0,) for node in chosen}, frozenset(), {})
    behind: set[str] = set()
    if form.rounds_results:
        ends = [node for node in chosen if not form.replaces(node)]
        behind = {(fused_activation(graph, node, nodes) or node).outputs[0] for node in ends}
    reads = {}
    for node in chosen:
        positions = quantised_inputs(graph, node)
        if not form.rounds_results:
            positions = _needed(graph, node, positions, nodes & quantised)
        reads[node.index] = positions
    touched = {graph.nodes[index].inputs[position] for index, places in reads.items() for position in places}
    signed = _read_signed(graph, chosen) if form.symmetric_products else frozenset()
    scales = {name: _scale(graph, name, ranges, signed) for name in sorted(touched | behind)}
    means = {node.index: means for node in chosen if (means := correcting_means(graph, node, ranges))}
    return Plan(reads, frozenset(behind), scales, means)


def _needed(graph: Graph, node: Node, positions: tuple[int, ...], quantised: NodeSet) -> tuple[int, ...]:
    """``positions`` without inputs that are rounded already, and without the first operand of a fused sum."""
    remaining = [place for place in positions if not _made_by(graph, node.inputs[place], quantised, PASSING)]
    if node.op_type == "Add":
        # Libraries add inside the convolution that makes an operand, which is not rounded before; of two, the first.
        begun = [place for place in remaining if _begins_sum(graph, node.inputs[place], quantised)]
        remaining = [place for place in remaining if place not in begun[:1]]
    return tuple(remaining)


def _made_by(graph: Graph, tensor: str, quantised: NodeSet, op_types: frozenset[str]) -> bool:
    maker = graph.producer.get(tensor)
    return maker is not None and bool(quantised >> maker & 1) and graph.nodes[maker].op_type in op_types


def _begins_sum(graph: Graph, tensor: str, quantised: NodeSet) -> bool:
    single_reader = len(graph.consumers.get(tensor, ())) == 1 and tensor not in graph.outputs
    return single_reader and _made_by(graph, tensor, quantised, HEAVY)


def _read_signed(graph: Graph, quantised: Iterable[Node]) -> frozenset[str]:
    """The tensors that a product of two activations reads, by the tensors that determine their scales."""
    products = [node for node in quantised if node.op_type in HEAVY and len(quantised_inputs(graph, node)) > 1]
    return frozenset(scale_source(graph, name) for node in products for name in node.inputs)


def _scale(graph: Graph, tensor: str, ranges: Ranges, signed: frozenset[str]) -> Scale:
    source = scale_source(graph, tensor)
    if source not in ranges:
        raise InputError(f"tensor {source} has no calibrated range, so {tensor} cannot be quantised")
    scale = symmetric_scale if source in signed else activation_scale
    return scale(ranges[source].low, ranges[source].high)
