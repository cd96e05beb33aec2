"""Writes quantisers into a region: takes a graph, nodes and ranges, gives a standalone model, or its keys.

Names are canonical as in ``graph/extract.py``: equal regions with equal scales give equal models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from collage_evo.graph.extract import canonical_names, extract, import_domains, put_operators
from collage_evo.graph.ir import Graph, Node, NodeSet, members
from collage_evo.graph.operators import HEAVY
from collage_evo.quantise.bias import corrected_bias
from collage_evo.quantise.marks import mark_int8
from collage_evo.quantise.plan import Plan, make_plan
from collage_evo.quantise.rounded import RoundedWeights, rounded_weights, usual_scales
from collage_evo.quantise.rules import Quantisers, Ranges, weight_axis
from collage_evo.quantise.scales import Scale, quantise_bias, with_room_for
from collage_evo.quantise.signals import column_to_write, pads_to_write

CONTRIBUTED = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


def quantised_region(
    graph: Graph, nodes: NodeSet, quantised: NodeSet, ranges: Ranges, quantisers: Quantisers
) -> onnx.ModelProto:
    """The region ``nodes`` as a model of its own in which ``quantised`` of them stand between quantisers.

    Its inputs and outputs are those of :func:`collage_evo.graph.extract.extract`, in their own types.

    Raises:
        InputError: a tensor that needs a range has none.
    """
    plan = make_plan(graph, nodes, quantised, ranges, quantisers)
    writer = _Writer(graph, nodes, plan, quantisers)
    for index in members(nodes):
        writer.node(graph.nodes[index])
    return writer.finished()


def quantisation_key(
    graph: Graph, nodes: NodeSet, quantised: NodeSet, ranges: Ranges, quantisers: Quantisers
) -> str:
    """What a content hash must cover besides the region: which nodes run in int8, and what calibration saw."""
    plan = make_plan(graph, nodes, quantised, ranges, quantisers)
    names = canonical_names(graph, nodes)
    scales = sorted(f"{names[name]} {_told(scale)}" for name, scale in plan.scales.items())
    means = [f"{names[graph.nodes[index].outputs[0]]} {plan.means[index]}" for index in sorted(plan.means)]
    return _digest([structure_key(graph, nodes, quantised, quantisers), *scales, *means])


def structure_key(graph: Graph, nodes: NodeSet, quantised: NodeSet, quantisers: Quantisers) -> str:
    """What a structural hash must cover besides the region: which nodes run in int8."""
    places = [str(place) for place, index in enumerate(members(nodes)) if quantised >> index & 1]
    return _digest([_FORM, quantisers.value, *places])


def _told(scale: Scale) -> str:
    signed = " signed" if scale.zero_point.dtype == np.int8 else ""
    return f"{scale.scale.tobytes().hex()} {scale.zero_point}{signed}"


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


_FORM = "products read numbers from zero, corrected biases know of padding, convolutions read what is padded"
"""Changes where the same is written in another way: pieces and their costs are others then."""


class _Writer:
    """Takes the region's operators in order, and writes each with the quantisers that stand around it."""

    def __init__(self, graph: Graph, nodes: NodeSet, plan: Plan, quantisers: Quantisers) -> None:
        self._graph, self._plan, self._quantisers = graph, plan, quantisers
        self._names = canonical_names(graph, nodes)
        self._model = extract(graph, nodes)
        self._given = iter(list(self._model.graph.node))
        self._made: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._scales: dict[str, Scale] = {self._names[name]: scale for name, scale in plan.scales.items()}
        self._behind = {self._names[name] for name in plan.behind}
        self._rounded: dict[str, str] = {}
        """By canonical name, what a tensor is called behind its quantisers."""
        self._quantised: set[str] = set()
        """Canonical names of tensors that are there as integers too."""
        self._shifted: set[str] = set()
        """Tensors that are there as if the least of their numbers were zero."""

    def node(self, node: Node) -> None:
        """Write ``node``; those before it are written."""
        for proto in [next(self._given) for _ in node.protos]:
            for position, name in enumerate(proto.input):
                if name in self._behind:
                    proto.input[position] = self._rounded.get(name, name)
            if node.index in self._plan.reads and self._by_integers(node):
                self._product(node, proto)
                continue
            behind = self._read_rounded(node, proto) if node.index in self._plan.reads else ()
            self._made += [proto, *behind]
            for position, name in enumerate(proto.output):
                if name in self._behind:
                    proto.output[position] = f"{name}_raw" if name.startswith("o") else name
                    self._round(name, proto.output[position])

    def finished(self) -> onnx.ModelProto:
        """The model, without the constants that nothing reads any more."""
        for place, proto in enumerate(self._made):
            proto.name = f"n{place}_{proto.op_type}"
        constants = (numpy_helper.from_array(array, name) for name, array in self._constants.items())
        self._model.graph.initializer.extend(constants)
        put_operators(self._model, self._made)
        heavy = sum(self._graph.nodes[index].op_type in HEAVY for index in self._plan.reads)
        mark_int8(self._model, heavy)
        return self._model

    def _read_rounded(self, node: Node, proto: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        """Let ``proto`` read its activations, weights and, where the library wants that, its bias as integers; gives
        what stands behind it."""
        canonical = [self._names[name] for name in node.inputs]
        pads, column = self._layout(node)
        for position in self._plan.reads[node.index]:
            name = canonical[position]
            if pads or column:
                self._lay_out(name, proto, pads, column)
            else:
                proto.input[position] = self._from_zero(name) if self._offset(node) else self._round(name, name)
        if node.op_type not in HEAVY or (axis := weight_axis(self._graph, node)) is None:
            return ()
        if (added := self._integer_parameters(node, proto, axis, bool(column))) is not None:
            return [_on_result(proto, "product", "Add", added)]
        if not column:
            return ()
        shape = np.array(self._graph.tensors[node.outputs[0]].shape, np.int64)
        return [_on_result(proto, "column", "Reshape", self._shared(f"{proto.output[0]}_shape", shape))]

    def _layout(self, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What is added around the input of a convolution before it, and the shape that makes a column of that; empty
        where its library is no faster so."""
        if self._quantisers is not Quantisers.INPUTS or node.op_type != "Conv":
            return (), ()
        if 0 not in self._plan.reads[node.index] or node.inputs[1] not in self._graph.constants:
            return (), ()
        shifted = self._scales[self._names[node.inputs[0]]].zero_point != 0
        pads = pads_to_write(self._graph, node) if shifted else ()
        return pads, column_to_write(self._graph, node, pads)

    def _lay_out(self, name: str, proto: onnx.NodeProto, pads: tuple[int, ...], column: tuple[int, ...]) -> None:
        """Let a convolution read the tensor ``name`` so; it is moved as integers."""
        self._quantise(name, name)
        given, scale = f"{name}_q", (f"{name}_scale", f"{name}_zero")
        given = self._moved("Pad", given, pads, scale[1]) if pads else given
        given = self._moved("Reshape", given, column) if column else given
        proto.input[0] = self._moved("DequantizeLinear", given, (), *scale)
        # Of what is a column nothing is left to pad.
        attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute
                      if one.name not in ("auto_pad", "pads")}  # fmt: skip
        along = ("kernel_shape", "strides", "dilations") if column else ()
        attributes |= {key: [attributes[key][-1], 1] for key in along if key in attributes}
        proto.ClearField("attribute")
        proto.attribute.extend(helper.make_attribute(*one) for one in attributes.items())

    def _moved(self, op_type: str, given: str, numbers: Sequence[int], *parameters: str) -> str:
        """What ``op_type`` makes of the integers ``given``, by ``numbers``; written once."""
        made = "_".join(map(str, (given, op_type.lower(), *numbers)))
        if made not in self._quantised:
            self._quantised.add(made)
            constant = [self._shared(f"{made}_by", np.array(numbers, np.int64))] if numbers else []
            self._made.append(helper.make_node(op_type, [given, *constant, *parameters], [made]))
        return made

    def _integer_parameters(self, node: Node, proto: onnx.NodeProto, axis: int, column: bool) -> str | None:
        """Let ``proto`` read its weights, as a ``column`` or as they are, and, where the library wants that, its bias
        as integers; gives the name of what is to be added to the result of an operator that takes no bias."""
        scales = usual_scales(self._graph, node.inputs[1], axis)
        bias, unit = self._bias(node), None
        if self._quantisers is Quantisers.BOTH:
            unit = self._scales[self._names[node.inputs[0]]].scale
            if bias is not None:
                scales = with_room_for(np.broadcast_to(bias, scales.shape), unit, scales)
        weights = rounded_weights(self._graph, node.inputs[1], axis, scales)
        numbers = weights.numbers.reshape(*weights.numbers.shape[:2], -1, 1) if column else weights.numbers
        proto.input[1] = self._constant(self._names[node.inputs[1]], numbers, scales, axis)
        corrected = self._corrected(node, weights)
        if offset := self._offset(node):
            corrected = corrected_bias(bias if corrected is None else corrected, -offset * weights.sums)
        added = bias if corrected is None else corrected
        if added is None or (corrected is None and unit is None):
            return None
        name = f"{self._names[node.outputs[0]]}_bias"
        if unit is None:
            written = self._shared(name, added)
        else:
            added = np.broadcast_to(added, scales.shape)
            written = self._constant(name, *quantise_bias(added, unit, scales), 0)
        if node.op_type == "MatMul":
            return written
        del proto.input[2:]
        proto.input.append(written)
        return None

    def _offset(self, node: Node) -> float:
        """By how much ``node`` reads its activation too large: a product as if the least of its numbers were zero,
        since OpenVINO undoes a zero point of a product's input in a loop of its own. Else 0.0."""
        product = node.op_type in ("Gemm", "MatMul") and node.inputs[1] in self._graph.constants
        if self._quantisers is not Quantisers.INPUTS or not product or 0 not in self._plan.reads[node.index]:
            return 0.0
        scale = self._scales[self._names[node.inputs[0]]]
        return int(scale.zero_point) * float(scale.scale)

    def _from_zero(self, name: str) -> str:
        """The tensor behind a pair of quantisers, the second without a zero point."""
        self._quantise(name, name)
        least = f"{name}_from_zero"
        if least not in self._shifted:
            self._shifted.add(least)
            self._made.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_scale"], [least]))
        return least

    def _bias(self, node: Node) -> np.ndarray | None:
        return self._graph.constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None

    def _corrected(self, node: Node, weights: RoundedWeights) -> np.ndarray | None:
        """The bias that undoes the mean of what rounding its weights does to ``node``; None where that is unknown."""
        if (means := self._plan.means.get(node.index)) is None:
            return None
        return corrected_bias(self._bias(node), weights.shift(self._graph, node, means))

    def _quantise(self, name: str, given: str) -> None:
        """Write what makes integers of the tensor ``given``, which others know as ``name``."""
        if name not in self._quantised:
            self._quantised.add(name)
            scale = self._scales[name]
            factor = self._shared(f"{name}_scale", np.array(scale.scale, np.float32))
            zero = self._shared(f"{name}_zero", np.array(scale.zero_point))
            self._made.append(helper.make_node("QuantizeLinear", [given, factor, zero], [f"{name}_q"]))

    def _round(self, name: str, given: str) -> str:
        """The tensor behind a pair of quantisers, which is written where it is not there yet."""
        self._quantise(name, given)
        if name not in self._rounded:
            # What leaves the region keeps its name; its maker calls it otherwise.
            rounded = self._rounded[name] = name if given != name else f"{name}_dq"
            inputs = [f"{name}_{part}" for part in ("q", "scale", "zero")]
            self._made.append(helper.make_node("DequantizeLinear", inputs, [rounded]))
        return self._rounded[name]

    def _by_integers(self, node: Node) -> bool:
        """Whether it is written with integers, not between quantisers that the library has to recognise."""
        return self._quantisers is not Quantisers.INPUTS and node.op_type in ("Gemm", "MatMul")

    def _shared(self, name: str, array: np.ndarray) -> str:
        self._constants.setdefault(name, array)
        return name

    def _constant(self, name: str, numbers: np.ndarray, scales: np.ndarray, axis: int) -> str:
        """The constant ``name`` as integers behind a DequantizeLinear; written once for equal integers."""
        inner = f"{name}_{numbers.dtype.name}"
        while f"{inner}_q" in self._constants:
            same = self._constants[f"{inner}_scale"], self._constants[f"{inner}_q"]
            if np.array_equal(same[0], scales) and np.array_equal(same[1], numbers):
                return f"{inner}_dq"
            inner += "_"
        parts = {"q": numbers, "scale": scales, "zero": np.zeros(scales.shape, numbers.dtype)}
        inputs = [self._shared(f"{inner}_{part}", array) for part, array in parts.items()]
        self._made.append(helper.make_node("DequantizeLinear", inputs, [f"{inner}_dq"], axis=axis))
        return f"{inner}_dq"

    def _product(self, node: Node, proto: onnx.NodeProto) -> None:
        """Integers times integers with a result in float32, by ONNX Runtime's own operator for that."""
        axis = weight_axis(self._graph, node)
        corrected = None
        sides = [self._integers(self._names[node.inputs[position]]) for position in self._plan.reads[node.index]]
        if axis is not None:
            scales = usual_scales(self._graph, node.inputs[1], axis)
            weights = rounded_weights(self._graph, node.inputs[1], axis, scales)
            sides.append(self._integer_weights(self._names[node.inputs[1]], weights.numbers, scales, axis))
            corrected = self._corrected(node, weights)
        # Numbers of both sides, scales of both, zero points of both.
        inputs = [side[part] for part in range(3) for side in sides]
        bias = [proto.input[2]] if len(proto.input) > 2 and proto.input[2] else []
        if corrected is not None:
            bias = [self._shared(f"{self._names[node.outputs[0]]}_bias", corrected)]
        self._made.append(
            helper.make_node("MatMulIntegerToFloat", [*inputs, *bias], list(proto.output), domain=CONTRIBUTED)
        )
        import_domains(self._model, {CONTRIBUTED: 1})

    def _integers(self, name: str) -> tuple[str, str, str]:
        """The activation ``name`` as integers, their scale and zero point."""
        parts = f"{name}_q", f"{name}_scale", f"{name}_zero"
        if self._quantisers is not Quantisers.DYNAMIC:
            self._quantise(name, name)
        elif name not in self._quantised:
            self._quantised.add(name)
            self._made.append(helper.make_node("DynamicQuantizeLinear", [name], list(parts)))
        return parts

    def _integer_weights(self, name: str, numbers: np.ndarray, scales: np.ndarray, axis: int) -> tuple[str, str, str]:
        """The matrix ``name`` as integers with the outputs last, their scales and zero points."""
        inner = f"{name}_int8_axis{axis}"
        parts = {"q": numbers if axis else numbers.T, "scale": scales, "zero": np.zeros(scales.shape, np.int8)}
        names = tuple(self._shared(f"{inner}_{part}", np.ascontiguousarray(array)) for part, array in parts.items())
        return names[0], names[1], names[2]


def _on_result(proto: onnx.NodeProto, form: str, op_type: str, other: str) -> onnx.NodeProto:
    """What makes the result of ``proto`` from its ``form``, which ``proto`` gives, and ``other``."""
    name, proto.output[0] = proto.output[0], f"{proto.output[0]}_{form}"
    return helper.make_node(op_type, [proto.output[0], other], [name])
