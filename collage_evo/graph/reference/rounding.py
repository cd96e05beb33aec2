"""Sensitivity of a model's outputs to rounding: a second run with every float off by about one rounding."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner, version_converter

from collage_evo.errors import InputError, one_line
from collage_evo.graph.ir.weights import bodies
from collage_evo.graph.reference.noise import Noise, noise_of
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import refill

_ROUNDOFF: Mapping[int, float] = {
    TensorProto.FLOAT: 2.0**-22,
    TensorProto.DOUBLE: 2.0**-51,
    TensorProto.FLOAT16: 2.0**-11,
    TensorProto.BFLOAT16: 2.0**-8,
}
"""Relative change of a number of each type. With four units of roundoff in float32 the outputs of
SqueezeNet, MobileNet v2, ResNet-50, Inception v3, DenseNet and BERT move 1.4 to 2.2 times as far as ONNX Runtime's
optimisations move them."""
_TURNS = 1e7
"""A sine of a number times this is as good as random, and the same for equal numbers: ties stay ties."""
_COPIES = {
    *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Slice", "Split"),
    *("Concat", "Where", "Gather", "GatherElements", "GatherND", "Max", "Min", "MaxPool", "GlobalMaxPool"),
    *("ReduceMax", "ReduceMin", "TopK"),
}
"""Operators that select numbers: a detector of peaks compares these with where they come from."""
_LEAST_OPSET = 13
"""From here on Equal, Where, Round and Cast take all of these types."""

_BY_SQUARES = "GroupNormalization"
"""ONNX defines it by the difference of the mean of squares and the square of the mean."""


class Moved:
    """A model in which every float that is computed is off by about one rounding, loaded once for many inputs.

    Args:
        model: a model that ONNX Runtime runs.
        threads: for each run.
        timeout_s: limit of one run in seconds.

    Raises:
        InputError: the model cannot be written in this form.
    """

    def __init__(self, model: ModelProto, threads: int, timeout_s: float | None) -> None:
        self._reference = Reference(_moved(model), threads, timeout_s=timeout_s)

    def noise(self, feeds: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Noise]:
        """The noise of each output on ``feeds``; ``expected`` are the unmodified model's outputs.

        Raises:
            InputError: the modified model does not run.
        """
        return {name: noise_of(output, expected[name]) for name, output in self._reference.run_named(feeds).items()}


def cancels(model: ModelProto) -> bool:
    """Whether a difference of squares in ``model``, as of a variance, may leave nothing but the rounding."""
    nodes = model.graph.node
    squares = {n.output[0] for n in nodes if n.op_type == "Pow" or (n.op_type == "Mul" and n.input[0] == n.input[1])}
    return any(n.op_type == _BY_SQUARES or (n.op_type == "Sub" and n.input[1] in squares) for n in nodes)


def _moved(model: ModelProto) -> ModelProto:
    """``model`` with each float multiplied by nearly one behind the input or the operator that makes it."""
    try:
        converted = inliner.inline_local_functions(model) if model.functions else model
        if next((one.version for one in converted.opset_import if one.domain in ("", "ai.onnx")), 0) < _LEAST_OPSET:
            converted = version_converter.convert_version(converted, _LEAST_OPSET)
        inferred = onnx.shape_inference.infer_shapes(converted)
        if any(node.op_type == _BY_SQUARES for node in inferred.graph.node):
            types = [helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in inferred.graph.initializer]
            inferred.graph.value_info.extend(types)  # the inliner asks for them
            written = inliner.inline_selected_functions(inferred, [("", _BY_SQUARES)], inline_schema_functions=True)
            inferred = onnx.shape_inference.infer_shapes(written)
    except Exception as error:  # the checker, the inliner and the converter have no common base class
        raise InputError(f"the model cannot be run with other rounding: {one_line(error)}") from error
    _Mover().write(inferred.graph)
    return inferred


class _Mover:
    """Writes the operators that move numbers into a graph and into the bodies of its operators."""

    def __init__(self) -> None:
        self._names = map("collage_evo_moved_{}".format, itertools.count(1))

    def write(self, graph: GraphProto) -> None:
        types = {
            value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)
        }
        fixed = {one.name for one in graph.initializer}
        nodes: list[NodeProto] = []
        renamed: dict[str, str] = {}
        for value in graph.input:
            if types[value.name] in _ROUNDOFF and value.name not in fixed:
                renamed[value.name] = next(self._names)
                nodes += self._move(value.name, renamed[value.name], types[value.name])
        for node in graph.node:
            for body in bodies(node):
                self.write(body)
            if node.op_type == "Constant":
                nodes.append(node)
                continue
            for index, name in enumerate(node.input):
                node.input[index] = renamed.get(name, name)
            moves: list[NodeProto] = []
            for index, name in enumerate(node.output):
                if name and types.get(name) in _ROUNDOFF and node.op_type not in _COPIES:
                    node.output[index] = next(self._names)
                    moves += self._move(node.output[index], name, types[name])
            nodes += [node, *moves]
        refill(graph.node, nodes)

    def _move(self, source: str, target: str, kind: int) -> Iterator[NodeProto]:
        """Move floats. Whole numbers stay exact, as in every library: they may be counts or positions in an image."""
        narrow = kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        wide = TensorProto.FLOAT if narrow else kind
        value = source
        if narrow:
            value = next(self._names)
            yield helper.make_node("Cast", [source], [value], to=wide)
        turns, roundoff, turned, sine, share, off, near, whole, same, made = itertools.islice(self._names, 10)
        for name, number in ((turns, _TURNS), (roundoff, _ROUNDOFF[kind])):
            yield helper.make_node("Constant", [], [name], value=helper.make_tensor(name, wide, [], [number]))
        steps = (
            ("Mul", [value, turns], turned),
            ("Sin", [turned], sine),
            ("Mul", [sine, roundoff], share),
            ("Mul", [value, share], off),
            ("Add", [value, off], near),
            ("Round", [value], whole),
            ("Equal", [value, whole], same),
            ("Where", [same, value, near], made if narrow else target),
        )
        yield from (helper.make_node(op_type, inputs, [output]) for op_type, inputs, output in steps)
        if narrow:
            yield helper.make_node("Cast", [made], [target], to=kind)
