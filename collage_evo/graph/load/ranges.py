"""The shapes of an open run, from ranges of sizes that the user writes or from the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.open_shapes import Dimension, OpenShapes, Shapes
from collage_evo.graph.load.shapes import check_shapes, is_tensor, written
from collage_evo.hardware.memory import usable_memory
from collage_evo.models.builtin import nearest


def shapes_in_ranges(model: onnx.ModelProto, sizes: Mapping[str, Any]) -> OpenShapes:
    """The shapes that a user's ``sizes`` permit: a size or range for the name of a dimension, or a list of these for
    an input.

    Axes that the file names alike are one dimension if their ranges are equal, and so are axes without a name in the
    same place of several inputs.

    Raises:
        InputError: a name is neither an input's nor a dimension's; a size is missing, or contradicts the model; the
            largest inputs do not fit into memory.
    """
    inputs = {name: value for name, value in given_inputs(model).items() if is_tensor(value)}
    params = {param for value in inputs.values() for param in _params(value)} - {"", *inputs}
    for name in sizes.keys() - inputs.keys() - params:
        known = f"{', '.join(sorted(params)) or 'none with a name'}; its inputs are: {', '.join(inputs)}"
        like = nearest(name, dict.fromkeys((*params, *inputs)))
        raise InputError(f"model.shapes names {name!r}, which is no dimension of the model{like}; they are: {known}")
    by_name = {name: _read(name, size) for name, size in sizes.items() if name not in inputs}
    lists = {
        name: sizes[name] if isinstance(sizes[name], list) else [sizes[name]] for name in inputs if name in sizes
    }
    by_input = {name: [_read(name, size) for size in several] for name, several in lists.items()}
    for end in ("low", "high"):
        check_shapes(
            model, {name: [getattr(dimension, end) for dimension in several] for name, several in by_input.items()}
        )
    for name, several in by_input.items():
        for param, dimension in zip(_params(inputs[name]), several, strict=False):
            by_name.setdefault(param, dimension)
    by_name.pop("", None)
    ranges: dict[str, list[tuple[int, ...]]] = {}
    for name, value in inputs.items():
        found: list[Dimension | None] = list(by_input.get(name, ()))
        found = found or [_declared(dim) or by_name.get(dim.dim_param) for dim in _dims(value)]
        ranges[name] = [(dimension.low, dimension.high, dimension.step) for dimension in found if dimension]
        if len(ranges[name]) < len(found) or not (found or value.type.tensor_type.HasField("shape")):
            raise InputError(f"model.shapes lacks sizes of {name}: {written(value)}: give a size or a range of each")
    shapes = _joined(inputs, ranges, lambda range_: Dimension(range_[0], range_[1], step=range_[2]))
    _require_memory(inputs, shapes.largest)
    return shapes


def shapes_of_samples(model: onnx.ModelProto, samples: Sequence[Mapping[str, Sequence[int]]]) -> OpenShapes:
    """The shapes between those that ``samples`` have, of which each input has one rank.

    Axes of open size are one dimension if they have the same size in each sample, and the same name or place.
    """
    inputs = {name: value for name, value in given_inputs(model).items() if name in samples[0]}
    sizes = {name: list(zip(*(sample[name] for sample in samples), strict=True)) for name in inputs}
    return _joined(inputs, sizes, lambda several: Dimension(min(several), max(several)))


def _read(name: str, size: Any) -> Dimension:
    try:
        return Dimension.read(size)
    except ValueError as error:
        raise InputError(f"model.shapes: {name}: {error}") from None


def _joined(
    inputs: Mapping[str, onnx.ValueInfoProto],
    sizes: Mapping[str, Sequence[tuple[int, ...]]],
    dimension: Callable[[tuple[int, ...]], Dimension],
) -> OpenShapes:
    """Dimensions of ``inputs`` from the sizes of each axis: those in all samples, or a range's ends and step."""
    joined: dict[tuple[str, tuple[int, ...]], Dimension] = {}
    found: dict[str, tuple[Dimension, ...]] = {}
    for name, value in inputs.items():
        params = _params(value) or [""] * len(sizes[name])
        dimensions: list[Dimension] = []
        for axis, (param, several) in enumerate(zip(params, sizes[name], strict=True)):
            new = dimension(several)
            if not (_dims(value) and _declared(_dims(value)[axis])):
                # Exporters give one name to sizes that differ.
                named = param and param not in {other.name for other in joined.values()}
                new = replace(new, name=param if named else f"{name}[{axis}]")
                new = joined.setdefault((param or f"axis {axis}", several), new)
            dimensions.append(new)
        found[name] = tuple(dimensions)
    return OpenShapes(found)


def _dims(value: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    return list(value.type.tensor_type.shape.dim)


def _declared(dim: onnx.TensorShapeProto.Dimension) -> Dimension | None:
    """The size that the model fixes; None for an open one."""
    return Dimension(dim.dim_value, dim.dim_value) if dim.dim_value > 0 else None


def _params(value: onnx.ValueInfoProto) -> list[str]:
    """The name of each dimension, empty for one without."""
    return [dim.dim_param for dim in _dims(value)]


def _require_memory(inputs: Mapping[str, onnx.ValueInfoProto], largest: Shapes) -> None:
    for name, value in inputs.items():
        kind = value.type.tensor_type.elem_type
        size = math.prod(largest[name]) * onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
        if size > usable_memory():
            much = f"{size / 2**30:,.1f} GiB, more than the {usable_memory() / 2**30:.1f} GiB of memory here"
            raise InputError(f"model.shapes allows {name} {largest[name]}, which takes {much}: give smaller ranges")
