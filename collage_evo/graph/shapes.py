"""Fixes dynamic dimensions: takes a model and a person's shapes, changes the declared types in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.builtin import nearest


def fix_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give every input of ``model`` a static shape.

    A named dimension that one shape fixes is fixed wherever the name is used.

    Raises:
        InputError: a shape is for no input or contradicts the model, or an input stays dynamic.
    """
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in weights}
    _require_tensors(inputs)
    known: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(
                f"model.shapes names {name!r}, which is no input of the model{nearest(name, inputs)}; "
                f"its inputs are: {', '.join(inputs) or 'none'}"
            )
        _fix_input(inputs[name], shape, known)
    dynamic = any(_is_dynamic(value) for value in inputs.values())
    if known:
        for value in (*inputs.values(), *graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in known:
                    dim.dim_value = known[dim.dim_param]
    _require_static(inputs)
    if shapes or dynamic:
        # What an exporter noted for inner tensors may contradict the shapes now given: it is inferred again.
        static = [value for value in graph.value_info if not _is_dynamic(value)]
        del graph.value_info[:]
        graph.value_info.extend(static)


def _fix_input(value: onnx.ValueInfoProto, shape: Sequence[int], known: dict[str, int]) -> None:
    given = list(shape)
    if not all(isinstance(size, int) and size > 0 for size in given):
        raise InputError(f"model.shapes gives {value.name!r} the shape {given}: use positive integers only")
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        tensor.shape.SetInParent()
        for _ in given:
            tensor.shape.dim.add()
    dims = tensor.shape.dim
    if len(given) != len(dims):
        raise InputError(
            f"model.shapes gives {value.name!r} {len(given)} dimensions {given}, but the model has "
            f"{len(dims)}: {_written(value)}"
        )
    for size, dim in zip(given, dims, strict=True):
        if dim.dim_value > 0 and dim.dim_value != size:
            raise InputError(
                f"model.shapes gives {value.name!r} the shape {given}, but the model has {_written(value)}: "
                "keep the numbers that the model fixes"
            )
        if dim.dim_param and known.setdefault(dim.dim_param, size) != size:
            raise InputError(
                f"model.shapes gives the dimension {dim.dim_param!r} both {known[dim.dim_param]} and {size} "
                f"(the latter in {value.name!r}): it is one size throughout the model"
            )
    for size, dim in zip(given, dims, strict=True):
        dim.dim_value = size


def _is_dynamic(value: onnx.ValueInfoProto) -> bool:
    """Whether a dimension is named, unset or no positive number, or the rank is not known."""
    tensor = value.type.tensor_type
    return not tensor.HasField("shape") or any(dim.dim_value <= 0 for dim in tensor.shape.dim)


def _require_tensors(inputs: Mapping[str, onnx.ValueInfoProto]) -> None:
    for value in inputs.values():
        if value.type.WhichOneof("value") != "tensor_type":
            raise InputError(f"input {value.name!r} is no tensor: only tensor inputs are supported")


def _require_static(inputs: Mapping[str, onnx.ValueInfoProto]) -> None:
    dynamic = [value for value in inputs.values() if _is_dynamic(value)]
    if dynamic:
        found = ", ".join(f"{value.name!r} {_written(value)}" for value in dynamic)
        example = ", ".join(f"{value.name}: {_example(value)}" for value in dynamic)
        noun = "input has" if len(dynamic) == 1 else "inputs have"
        raise InputError(
            f"{noun} dynamic dimensions: {found}; fix them with model.shapes: {{{example}}} in the "
            f"configuration or -s 'model.shapes={{{example}}}'"
        )


def _written(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return "[unknown rank]"
    dims = (str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or "?" for dim in tensor.shape.dim)
    return f"[{', '.join(dims)}]"


def _example(value: onnx.ValueInfoProto) -> str:
    """A shape to copy: the fixed sizes, and 1 for a first dimension and 224 or 128 for others left open."""
    dims = value.type.tensor_type.shape.dim
    usual = 224 if len(dims) == 4 else 128
    sizes = [dim.dim_value if dim.dim_value > 0 else 1 if k == 0 else usual for k, dim in enumerate(dims)]
    return str(sizes or [1, 3, 224, 224])
