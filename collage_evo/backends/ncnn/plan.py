"""The plan of calls of a converted ncnn network: the treatment of each input and output."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collage_evo.backends.ncnn.rules import MAX_RANK
from collage_evo.errors import CollageError

_NO_BATCH = 233
"""The converter's batch axis for a tensor without one."""
_READ_ONLY = {
    *("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise"),
    *("Gemm", "InnerProduct", "Pooling"),
}
"""Layers that never write on their inputs. Others may work in place, on the caller's memory if it is shared."""
_CALL = re.compile(r"(?:ex\.input\(\"in\d+\"|out\.append)\(?.*batch_index=(\d+)\)")


class ConversionError(CollageError):
    """The converter made a network that differs from the model, or that ncnn cannot run."""


@dataclass(frozen=True)
class Plan:
    """For each input and output whether ncnn gets it without its first axis; which inputs it may read in place."""

    batched_inputs: tuple[bool, ...]
    batched_outputs: tuple[bool, ...]
    shared_inputs: tuple[bool, ...]


@dataclass(frozen=True)
class _Layer:
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def make_plan(
    param: str, script: str, shapes: Sequence[Sequence[int]], inputs: int, known: Callable[[str], bool]
) -> Plan:
    """Read the network's text file and the sample script that comes with it.

    Args:
        param: the ``.ncnn.param`` file's text.
        script: the ``_ncnn.py`` file's text; only this file shows which tensors have lost their batch axis.
        shapes: of each of the model's inputs, then of each output; an open size is 0.
        inputs: number of inputs among them.
        known: whether ncnn has a layer of this type.

    Raises:
        ConversionError: the network is not the model, or has layers that ncnn does not know, or a batch is
            not of one sample.
    """
    layers = [_layer(line) for line in param.splitlines()[2:] if line.strip()]
    foreign = [layer.kind for layer in layers if not known(layer.kind)]
    if foreign:
        raise ConversionError(f"the converter found no ncnn layer for {foreign[0]}")
    blobs = {blob for layer in layers for blob in layer.outputs}
    names = [f"in{k}" for k in range(inputs)] + [f"out{k}" for k in range(len(shapes) - inputs)]
    lost = [name for name in names if name not in blobs]
    if lost:
        raise ConversionError(f"the converter lost {lost[0]}")
    axes = [int(axis) for axis in _CALL.findall(script)]
    if len(axes) != len(shapes):
        raise ConversionError("the converter's sample script is not understood: another version of pnnx?")
    for name, axis, shape in zip(names, axes, shapes, strict=True):
        rank = len(shape)
        if axis not in (0, _NO_BATCH) or rank - (axis == 0) not in range(1, MAX_RANK + 1):
            raise ConversionError(f"{name} has {rank} axes, the batch axis is {axis}")
        if axis == 0 and shape[0] != 1:  # ncnn would get only the first sample
            raise ConversionError(f"{name} has the shape {list(shape)}: ncnn runs batches of one sample only")
    batched = tuple(axis == 0 for axis in axes)
    shared = tuple(_read_only(layers, f"in{k}") for k in range(inputs))
    return Plan(batched[:inputs], batched[inputs:], shared)


def _layer(line: str) -> _Layer:
    """``kind name input_count output_count inputs... outputs... parameters...``."""
    kind, _, input_count, output_count, *rest = line.split()
    middle, end = int(input_count), int(input_count) + int(output_count)
    return _Layer(kind, tuple(rest[:middle]), tuple(rest[middle:end]))


def _read_only(layers: Sequence[_Layer], blob: str) -> bool:
    """Whether every layer that gets the memory of ``blob`` only reads it. A Split passes it on."""
    for layer in layers:
        if blob in layer.inputs:
            if layer.kind == "Split":
                if not all(_read_only(layers, name) for name in layer.outputs):
                    return False
            elif layer.kind not in _READ_ONLY:
                return False
    return True
