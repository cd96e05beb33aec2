"""Writing of quantisers into a region: a standalone model, and its keys.

Names are canonical as in ``graph/convert/extract.py``: equal regions with equal scales give equal models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from collage_evo.digests import digest_of_lines
from collage_evo.graph.convert.extract import canonical_names, extract, import_domains, put_operators
from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.hardware.processor import this_machine
from collage_evo.precision.quantise.bias import corrected_bias
from collage_evo.precision.quantise.form import PRODUCTS, Int8Form, Layout
from collage_evo.precision.quantise.marks import mark_int8
from collage_evo.precision.quantise.plan import Plan, make_plan
from collage_evo.precision.quantise.rounded import RoundedWeights, rounded_weights, usual_scales
from collage_evo.precision.quantise.rules import Ranges, weight_axis
from collage_evo.precision.quantise.scales import Scale, quantise_bias, with_room_for
from collage_evo.precision.quantise.tensors import Tensors


def quantised_region(
    graph: Graph, nodes: NodeSet, quantised: NodeSet, ranges: Ranges, form: Int8Form
) -> onnx.ModelProto:
    """The region ``nodes`` as a standalone model in which ``quantised`` of them have quantisers around them.

    Its inputs and outputs are those of :func:`collage_evo.graph.convert.extract.extract`, in their own types.

    Raises:
        InputError: a tensor that needs a range has none.
    """
    plan = make_plan(graph, nodes, quantised, ranges, form)
    writer = _Writer(graph, nodes, plan, form)
    for index in members(nodes):
        writer.node(graph.nodes[index])
    return writer.finished()


def quantisation_key(graph: Graph, nodes: NodeSet, quantised: NodeSet, ranges: Ranges, form: Int8Form) -> str:
    """Text that a content hash must cover besides the region: the nodes in int8, and their calibration."""
    plan = make_plan(graph, nodes, quantised, ranges, form)
    names = canonical_names(graph, nodes)
    scales = sorted(f"{names[name]} {_scale_text(scale)}" for name, scale in plan.scales.items())
    means = [f"{names[graph.nodes[index].outputs[0]]} {plan.means[index]}" for index in sorted(plan.means)]
    return digest_of_lines([structure_key(graph, nodes, quantised, form), *scales, *means])


def structure_key(graph: Graph, nodes: NodeSet, quantised: NodeSet, form: Int8Form) -> str:
    """Text that a structural hash must cover besides the region: the nodes in int8."""
    places = [str(place) for place, index in enumerate(members(nodes)) if quantised >> index & 1]
    saturating = ["weights fit sums of pairs"] if this_machine().saturates_int8 else []
    return digest_of_lines([_VERSION, *saturating, form.name, *places])


def _scale_text(scale: Scale) -> str:
    signed = " signed" if scale.zero_point.dtype == np.int8 else ""
    return f"{scale.scale.tobytes().hex()} {scale.zero_point}{signed}"


_VERSION = "products read numbers from zero, corrected biases know of padding, convolutions read what is padded"
"""Changes when the written form does, so that older pieces and costs are not used."""


class _Writer:
    """Writes the region's operators in order, each with the quantisers around it."""

    def __init__(self, graph: Graph, nodes: NodeSet, plan: Plan, form: Int8Form) -> None:
        self._graph, self._plan, self._form = graph, plan, form
        self._names = canonical_names(graph, nodes)
        self._model = extract(graph, nodes)
        self._given = iter(list(self._model.graph.node))
        self._tensors = Tensors({self._names[name]: scale for name, scale in plan.scales.items()})
        self._behind = {self._names[name] for name in plan.behind}

    def node(self, node: Node) -> None:
        """Write ``node``, after those before it."""
        tensors = self._tensors
        for proto in [next(self._given) for _ in node.protos]:
            for position, name in enumerate(proto.input):
                if name in self._behind:
                    proto.input[position] = tensors.behind.get(name, name)
            if node.index in self._plan.reads and self._form.replaces(node):
                self._product(node, proto)
                continue
            behind = self._read_rounded(node, proto) if node.index in self._plan.reads else ()
            tensors.written += [proto, *behind]
            for position, name in enumerate(proto.output):
                if name in self._behind:
                    proto.output[position] = f"{name}_raw" if name.startswith("o") else name
                    tensors.rounded(name, proto.output[position])

    def finished(self) -> onnx.ModelProto:
        """The model, without unread constants."""
        self._tensors.finish(self._model)
        put_operators(self._model, self._tensors.written)
        heavy = sum(self._graph.nodes[index].op_type in HEAVY for index in self._plan.reads)
        mark_int8(self._model, heavy)
        return self._model

    def _read_rounded(self, node: Node, proto: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        """Let ``proto`` read its activations, weights and, where the library needs that, its bias as integers;
        returns the operators behind it."""
        pads, column = self._layout(node)
        for position in self._plan.reads[node.index]:
            name = self._names[node.inputs[position]]
            if pads or column:
                proto.input[0] = self._tensors.laid_out(name, pads, column)
                _read_laid_out(proto, bool(column))
            elif self._offset(node):
                proto.input[position] = self._tensors.from_zero(name)
            else:
                proto.input[position] = self._tensors.rounded(name)
        if node.op_type not in HEAVY or (axis := weight_axis(self._graph, node)) is None:
            return ()
        if (added := self._integer_parameters(node, proto, axis, bool(column))) is not None:
            return [_on_result(proto, "product", "Add", added)]
        if not column:
            return ()
        shape = np.array(self._graph.tensors[node.outputs[0]].shape, np.int64)
        return [_on_result(proto, "column", "Reshape", self._tensors.constant(f"{proto.output[0]}_shape", shape))]

    def _layout(self, node: Node) -> Layout:
        if self._form.layout is None or node.op_type != "Conv":
            return Layout()
        if 0 not in self._plan.reads[node.index] or node.inputs[1] not in self._graph.constants:
            return Layout()
        return self._form.layout(self._graph, node, bool(self._scale(node).zero_point != 0))

    def _integer_parameters(self, node: Node, proto: onnx.NodeProto, axis: int, column: bool) -> str | None:
        """Let ``proto`` read its weights, as a ``column`` or unchanged, and, where the library needs that, its bias
        as integers; returns the name of the addend for the result of an operator that takes no bias."""
        scales = usual_scales(self._graph, node)
        bias, unit = self._bias(node), None
        if self._form.rounds_results:
            unit = self._scale(node).scale
            if bias is not None:
                scales = with_room_for(np.broadcast_to(bias, scales.shape), unit, scales)
        weights = rounded_weights(self._graph, node.inputs[1], axis, scales)
        numbers = weights.numbers.reshape(*weights.numbers.shape[:2], -1, 1) if column else weights.numbers
        proto.input[1] = self._tensors.channels(self._names[node.inputs[1]], numbers, scales, axis)
        corrected = self._corrected(node, weights)
        if offset := self._offset(node):
            corrected = corrected_bias(bias if corrected is None else corrected, -offset * weights.sums)
        added = bias if corrected is None else corrected
        if added is None or (corrected is None and unit is None):
            return None
        name = f"{self._names[node.outputs[0]]}_bias"
        if unit is None:
            written = self._tensors.constant(name, added)
        else:
            added = np.broadcast_to(added, scales.shape)
            written = self._tensors.channels(name, *quantise_bias(added, unit, scales), 0)
        if node.op_type == "MatMul":
            return written
        del proto.input[2:]
        proto.input.append(written)
        return None

    def _product(self, node: Node, proto: onnx.NodeProto) -> None:
        """Integers times integers with a result in float32, by the library's operator for that."""
        assert self._form.product is not None
        tensors, axis, corrected = self._tensors, weight_axis(self._graph, node), None
        integers = tensors.integers if self._form.calibrated else tensors.dynamic_integers
        sides = [integers(self._names[node.inputs[position]]) for position in self._plan.reads[node.index]]
        if axis is not None:
            scales = usual_scales(self._graph, node)
            weights = rounded_weights(self._graph, node.inputs[1], axis, scales)
            sides.append(tensors.matrix(self._names[node.inputs[1]], weights.numbers, scales, axis))
            corrected = self._corrected(node, weights)
        bias = proto.input[2] if len(proto.input) > 2 else ""
        if corrected is not None:
            bias = tensors.constant(f"{self._names[node.outputs[0]]}_bias", corrected)
        tensors.written.append(self._form.product(sides, bias, list(proto.output)))
        import_domains(self._model, {tensors.written[-1].domain: 1})

    def _scale(self, node: Node) -> Scale:
        """The scale of the first activation that ``node`` reads."""
        return self._tensors.scales[self._names[node.inputs[0]]]

    def _offset(self, node: Node) -> float:
        """The offset with which ``node`` reads its activation, as if the least number were zero; else 0.0."""
        product = node.op_type in PRODUCTS and node.inputs[1] in self._graph.constants
        if not self._form.products_from_zero or not product or 0 not in self._plan.reads[node.index]:
            return 0.0
        scale = self._scale(node)
        return int(scale.zero_point) * float(scale.scale)

    def _bias(self, node: Node) -> np.ndarray | None:
        return self._graph.constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None

    def _corrected(self, node: Node, weights: RoundedWeights) -> np.ndarray | None:
        """The bias that undoes the mean error of ``node`` by rounded weights; None where that is unknown."""
        if (means := self._plan.means.get(node.index)) is None:
            return None
        return corrected_bias(self._bias(node), weights.shift(self._graph, node, means))


def _read_laid_out(proto: onnx.NodeProto, column: bool) -> None:
    """Let a convolution read an input that is padded already, or is a ``column``, without padding of its own."""
    attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute
                  if one.name not in ("auto_pad", "pads")}  # fmt: skip
    along = ("kernel_shape", "strides", "dilations") if column else ()
    attributes |= {key: [attributes[key][-1], 1] for key in along if key in attributes}
    proto.ClearField("attribute")
    proto.attribute.extend(helper.make_attribute(*one) for one in attributes.items())


def _on_result(proto: onnx.NodeProto, form: str, op_type: str, other: str) -> onnx.NodeProto:
    """The operator that makes the result of ``proto`` from its ``form``, which ``proto`` makes, and ``other``."""
    name, proto.output[0] = proto.output[0], f"{proto.output[0]}_{form}"
    return helper.make_node(op_type, [proto.output[0], other], [name])
