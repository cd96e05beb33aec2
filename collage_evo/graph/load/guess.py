"""Missing input sizes of a model, found by running it.

A batch is 1. Where the model forces a size, only one runs: channels of a convolution, the state of a recurrent layer.
The user has to choose all others; the message names sizes that ran.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.shapes import dynamic_inputs, is_tensor, open_axes, written
from collage_evo.graph.load.trial import Trial, listed
from collage_evo.graph.reference.reference import Reference
from collage_evo.multimap import firsts

USUAL = (224, 128, 640)
"""Common sizes."""
SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 224, 256, 320, 384, 512, 576, 640, 1024, 1280, 1536, 4096, 16000)
TIMEOUT_S = 20.0
"""Time for finding sizes that run."""
MOST_FORCED = 64
"""Sizes of weights, smallest first, that are tried for an axis."""

Axis = tuple[str, int]
"""An input's name and one of its axes."""


def complete_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], any_shapes: bool
) -> tuple[dict[str, list[int]], tuple[str, ...]]:
    """Full shapes of all dynamic inputs, and notes on what was assumed.

    Args:
        model: has dynamic inputs.
        shapes: the user's.
        any_shapes: use the smallest sizes that run where several would.

    Raises:
        InputError: sizes are missing that the model does not force; the message suggests some that run.
    """
    complete = {name: list(shape) for name, shape in shapes.items()}
    missing = [value for value in dynamic_inputs(model) if value.name not in complete]
    if not missing:
        return complete, ()
    if any(not value.type.tensor_type.HasField("shape") for value in missing):
        raise _asks(missing, {value.name: [1, 3, 224, 224] for value in missing})
    hints = _hints(model, complete)
    shape_of = {value.name: _started(value, hints) for value in missing}
    axes = [(name, axis) for name, shape in shape_of.items() for axis, size in enumerate(shape) if size == 0]
    trial = Trial(model, Reference(model, timeout_s=TIMEOUT_S), complete)
    batched = any(0 in open_axes(value) and shape_of[value.name][0] == 1 for value in missing)
    notes = ("the batch is 1",) if batched else ()
    if not axes:
        return {**complete, **shape_of}, notes
    sizes = _first(trial, model, shape_of, axes, SIZES if any_shapes else (*USUAL, *SIZES))
    if sizes is None:
        raise _asks(missing, _filled(shape_of, dict.fromkeys(axes, USUAL[0])))
    completed = _filled(shape_of, sizes)
    if any_shapes:
        return {**complete, **completed}, (*notes, f"sizes are the smallest that run: {listed(completed)}")
    others = ((axis, other) for axis, size in sizes.items() for other in (2 * size, size + 1, size + 32))
    if not all(trial.refusal(_filled(shape_of, {**sizes, axis: other})) for axis, other in others):
        raise _asks(missing, completed)
    return {**complete, **completed}, (*notes, f"sizes are the only ones that run: {listed(completed)}")


def _first(
    trial: Trial,
    model: onnx.ModelProto,
    shapes: Mapping[str, list[int]],
    axes: Sequence[Axis],
    sizes: Sequence[int],
) -> dict[Axis, int] | None:
    """Sizes for ``axes`` that run: those earlier in ``sizes`` come first."""
    deadline = time.monotonic() + TIMEOUT_S
    for chosen in _assignments(axes, sizes, _weight_sizes(model)):
        if time.monotonic() > deadline:
            return None
        if not trial.refusal(_filled(shapes, chosen)):
            return chosen
    return None


def _assignments(axes: Sequence[Axis], sizes: Sequence[int], forced: Sequence[int]) -> Iterator[dict[Axis, int]]:
    """Sizes to try for ``axes``: one for all; then some of them 1, or a weight's, as with channels and states."""
    for size in sizes:
        yield dict.fromkeys(axes, size)
    for size in sizes:
        for ones in _subsets(axes):
            yield {axis: 1 if axis in ones else size for axis in axes}
    for size, special in itertools.product(sizes[:6], forced):
        for subset in _subsets(axes):
            yield {axis: special if axis in subset else size for axis in axes}


def _subsets(axes: Sequence[Axis]) -> Iterator[tuple[Axis, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(axes, count) for count in (1, 2, 3))


def _weight_sizes(model: onnx.ModelProto) -> list[int]:
    """Sizes of the axes of weights: one that a model forces is among them."""
    sizes = {size for tensor in model.graph.initializer if len(tensor.dims) > 1 for size in tensor.dims if size > 1}
    return sorted(sizes)[:MOST_FORCED]


def _hints(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Sizes of named dimensions in the user's shapes."""
    tensors = {name: value.type.tensor_type for name, value in given_inputs(model).items() if is_tensor(value)}
    known = [(tensor.shape.dim, shapes[name]) for name, tensor in tensors.items() if name in shapes]
    sized = (pair for dims, shape in known for pair in zip(dims, shape, strict=False))
    return firsts((dim.dim_param, size) for dim, size in sized if dim.dim_param)


def _started(value: onnx.ValueInfoProto, hints: Mapping[str, int]) -> list[int]:
    """The known sizes, 1 for an open first axis, 0 for any other open one."""
    dims = value.type.tensor_type.shape.dim
    open_ = set(open_axes(value))
    return [
        dim.dim_value if axis not in open_ else hints.get(dim.dim_param, 1 if axis == 0 else 0)
        for axis, dim in enumerate(dims)
    ]


def _filled(shapes: Mapping[str, Sequence[int]], sizes: Mapping[Axis, int]) -> dict[str, list[int]]:
    return {
        name: [sizes.get((name, axis), size) for axis, size in enumerate(shape)] for name, shape in shapes.items()
    }


def _asks(missing: Sequence[onnx.ValueInfoProto], example: Mapping[str, Sequence[int]]) -> InputError:
    inputs = ", ".join(f"{value.name!r} {written(value)}" for value in missing)
    noun = "input has" if len(missing) == 1 else "inputs have"
    shown = listed(example)
    return InputError(
        f"{noun} dynamic dimensions: {inputs}; give their sizes with --shapes '{shown}' (in a configuration "
        f"model.shapes: {{{shown}}}), or take the smallest that run with --shapes auto"
    )
