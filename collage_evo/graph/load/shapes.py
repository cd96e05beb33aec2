"""Shapes of a model's inputs: checks those that the user gives, and writes them into the declared types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.load.data import given_inputs
from collage_evo.models.builtin import nearest


def dynamic_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The input tensors with a dimension that is named, unset or no positive number, or without a known rank."""
    return [value for value in given_inputs(model).values() if is_tensor(value) and _is_dynamic(value)]


def check_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Make sure that ``shapes`` fit the model's inputs.

    A dimension's name is only a hint: exporters give one name to sizes that differ.

    Raises:
        InputError: a shape is for no input or contradicts the model.
    """
    inputs = given_inputs(model)
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(
                f"model.shapes names {name!r}, which is no input of the model{nearest(name, inputs)}; "
                f"its inputs are: {', '.join(inputs) or 'none'}"
            )
        _check(inputs[name], list(shape))


def fix_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Set the inputs' ``shapes``, and drop the declared types of other tensors, which may not hold for these."""
    inputs = given_inputs(model)
    for name, shape in shapes.items():
        tensor = inputs[name].type.tensor_type
        tensor.shape.Clear()
        tensor.shape.SetInParent()
        for size in shape:
            tensor.shape.dim.add().dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        if is_tensor(value):
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()


def is_tensor(value: onnx.ValueInfoProto) -> bool:
    """Whether ``value`` is a tensor: no sequence, map or optional value."""
    return bool(value.type.WhichOneof("value") == "tensor_type")


def open_axes(value: onnx.ValueInfoProto) -> list[int]:
    """The axes whose sizes the model leaves open."""
    return [axis for axis, dim in enumerate(value.type.tensor_type.shape.dim) if dim.dim_value <= 0]


def written(value: onnx.ValueInfoProto) -> str:
    """The declared shape as text."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return "[unknown rank]"
    dims = (str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or "?" for dim in tensor.shape.dim)
    return f"[{', '.join(dims)}]"


def _check(value: onnx.ValueInfoProto, shape: list[int]) -> None:
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise InputError(f"model.shapes gives {value.name!r} the shape {shape}: use whole numbers from 0 on")
    tensor = value.type.tensor_type
    if not is_tensor(value) or not tensor.HasField("shape"):
        return
    dims = tensor.shape.dim
    if len(shape) != len(dims):
        raise InputError(
            f"model.shapes gives {value.name!r} {len(shape)} dimensions {shape}, but the model has "
            f"{len(dims)}: {written(value)}"
        )
    if any(dim.dim_value > 0 and dim.dim_value != size for size, dim in zip(shape, dims, strict=True)):
        raise InputError(
            f"model.shapes gives {value.name!r} the shape {shape}, but the model has {written(value)}: "
            "keep the numbers that the model fixes"
        )


def _is_dynamic(value: onnx.ValueInfoProto) -> bool:
    return not value.type.tensor_type.HasField("shape") or bool(open_axes(value))
