"""Correction of masks that OpenVINO's CPU plugin computes wrongly: of attention, and truth values of integers."""

from __future__ import annotations

from typing import Any

from collage_evo.backends.openvino.sizes import bodies_of

_QUANTISERS = frozenset({"Convert", "FakeQuantize", "Multiply", "Subtract"})
"""The library's operators for ONNX's quantisers and Casts."""


def spread_masks(model: Any) -> None:
    """Change masks that are one row for all of attention, in place, into forms that the plugin adds correctly.

    OpenVINO 2026.4 reads scores from outside the mask where such a mask is a constant or an input and attention is in
    bfloat16, or on a processor with AMX in int8; there also behind a Where or a Gather, which the kernel of attention
    does not compute. A constant gets all its rows; others are negated twice in that kernel, which changes no value.
    """
    from openvino import opset13

    for softmax in model.get_ordered_ops():
        if softmax.get_type_name() != "Softmax" or not _is_multiplied(softmax.output(0)):
            continue
        scores = softmax.input_value(0).get_node()
        shape = scores.get_output_partial_shape(0)
        if scores.get_type_name() != "Add" or shape.is_dynamic or len(shape) < 2:
            continue
        *around, rows, columns = shape.to_shape()
        for place in (0, 1):
            mask = _before_spreading(scores.input_value(place))
            whole = scores.input_value(1 - place).get_partial_shape() == shape
            if not whole or not _is_one_row(mask, columns):
                continue
            if mask.get_node().get_type_name() == "Constant":
                right = opset13.broadcast(mask, [*([1] * len(around)), rows, columns])
            else:
                right = opset13.negative(opset13.negative(mask))
            scores.input(place).replace_source_output(right.output(0))


def compare_truths(model: Any) -> None:
    """Change integers that become truth values, in place and in bodies, into comparisons with 0.

    OpenVINO 2026.4 takes the least integer of 32 bits for false.
    """
    from openvino import opset13

    for convert in model.get_ordered_ops():
        for body in bodies_of(convert, convert.get_type_name()):
            compare_truths(body)
        if convert.get_type_name() != "Convert" or convert.get_output_element_type(0).get_type_name() != "boolean":
            continue
        source = convert.input_value(0)
        if source.get_element_type().get_type_name() in ("i32", "i64"):
            truth = opset13.not_equal(source, opset13.constant(0, source.get_element_type()))
            truth.set_friendly_name(convert.get_friendly_name())  # profiles name operators by it
            convert.output(0).replace(truth.output(0))


def _is_multiplied(weights: Any) -> bool:
    """Whether a product reads ``weights``, also through quantisers. A classifier's Softmax has a bias, no mask."""
    readers = [reader.get_node() for reader in weights.get_target_inputs()]
    through = (reader for reader in readers if reader.get_type_name() in _QUANTISERS)
    return any(reader.get_type_name() == "MatMul" for reader in readers) or any(
        _is_multiplied(reader.output(0)) for reader in through
    )


def _is_one_row(mask: Any, columns: int) -> bool:
    shape = mask.get_partial_shape()
    return not shape.is_dynamic and list(shape.to_shape()) == [*([1] * (len(shape) - 1)), columns]


def _before_spreading(value: Any) -> Any:
    """The value before broadcasts along other axes, which the plugin looks through."""
    while value.get_node().get_type_name() == "Broadcast":
        value = value.get_node().input_value(0)
    return value


def has_wrong_rows(model: Any) -> bool:
    """Whether the plugin's kernel for blocks may compute rows of open length in ``model`` wrongly.

    OpenVINO 2026.4 computes attention without a mask wrongly for rows that are longer than a vector if the first ones
    were shorter. Where a computed mask is added to the scores, it is right.
    """
    rows = (op for op in model.get_ops() if op.get_type_name() in ("Softmax", "GroupNormalization"))
    before = (op.input_value(0).get_node() for op in rows)
    return any(one.get_type_name() != "Add" or _is_constant(one) for one in before)


def _is_constant(added: Any) -> bool:
    """Whether one side of the addition ``added`` is a constant."""
    return any(added.input_value(side).get_node().get_type_name() == "Constant" for side in (0, 1))
