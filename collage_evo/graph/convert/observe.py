"""Observation of one run: types, shapes and small values of every tensor.

An observation holds for these inputs only. ``static.py`` proves which shapes hold for all inputs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from collage_evo.graph.ir.elements import EXTENDED
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.graph.reference.reference import Reference, dtype_of

SMALL = 4096
"""Most elements of a tensor whose value is recorded: shapes, bounds, axes, lengths."""


@dataclass(frozen=True)
class Observation:
    """Every tensor's type and shape in one run, and the values of the small ones."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, np.ndarray]


def observe(model: onnx.ModelProto, feeds: Mapping[str, Any], threads: int = 1) -> Observation:
    """Run ``model`` in ONNX Runtime without optimisations, and record every tensor that a node makes.

    The model itself computes the shapes of large tensors, as far as ONNX Runtime infers which are large, so that a
    run holds none longer than it would otherwise: all tensors of a speech encoder with 1500 positions are 15 GB. Of
    the many calibration samples only ranges and means are stored (``precision/quantise/observers.py``).

    Raises:
        InputError: it does not run on ``feeds``.
    """
    names = [name for node in model.graph.node for name in node.output if name]
    with _all_outputs(model, names) as asked:
        reference = Reference(model, threads)
    optional, shapes = reference.optional, dict[str, str]()
    if large := _large(model, reference):
        names = [name for name in names if name not in large]
        with _shapes(model, large) as shapes, _all_outputs(model, [*names, *shapes]) as asked:
            reference = Reference(model, threads, in_order=True)
    tensors: dict[str, Tensor] = {}
    values: dict[str, np.ndarray] = {}
    for name, value in (*feeds.items(), *zip(asked, _run(reference, feeds), strict=True)):
        # An optional value holds a tensor in this run, and may hold none in the next.
        tensor, small = (Tensor(name, OPAQUE, ()), None) if name in optional else _seen(name, value)
        if small is not None and name in shapes:
            tensor, small = Tensor(shapes[name], large[shapes[name]].name, tuple(small.tolist())), None
        tensors[tensor.name] = tensor
        if small is not None:
            values[name] = small
    return Observation(tensors, values)


def _large(model: onnx.ModelProto, reference: Reference) -> dict[str, np.dtype]:
    """The types of tensors between operators that ``reference``, which shows all, infers to be large."""
    if not any(one.domain in ("", "ai.onnx") for one in model.opset_import):
        return {}  # it has no operator Shape
    own = {value.name for value in model.graph.output}
    found = ((name, dtype_of(kind), sizes) for name, (kind, sizes) in reference.declared.items() if name not in own)
    return {
        name: dtype
        for name, dtype, sizes in found
        if dtype and sizes is not None and math.prod(sizes) > SMALL
    }


@contextlib.contextmanager
def _shapes(model: onnx.ModelProto, names: Collection[str]) -> Iterator[dict[str, str]]:
    """``model`` with the shapes of ``names`` as outputs, while the context lasts; yields whose each one is."""
    count = len(model.graph.node)
    shapes = {f"shape of {name}": name for name in names}
    model.graph.node.extend(helper.make_node("Shape", [name], [shape]) for shape, name in shapes.items())
    try:
        yield shapes
    finally:
        del model.graph.node[count:]


def record(
    model: onnx.ModelProto, feeds: Mapping[str, Any], names: Collection[str], threads: int = 1
) -> dict[str, Any]:
    """The values of the tensors ``names`` when ``model`` runs on ``feeds``.

    Raises:
        InputError: it does not run on ``feeds``.
    """
    outputs = [name for node in model.graph.node for name in node.output if name in names]
    with _all_outputs(model, outputs) as recorded_names:
        reference = Reference(model, threads)
    values = dict(zip(recorded_names, reference.run(feeds), strict=True))
    return {name: value for name, value in {**feeds, **values}.items() if name in names}


@contextlib.contextmanager
def _all_outputs(model: onnx.ModelProto, names: Collection[str]) -> Iterator[list[str]]:
    """``model`` with ``names`` among its outputs for the duration of the context; yields all its outputs in order."""
    declared = [value.name for value in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in declared)
    try:
        yield [value.name for value in model.graph.output]
    finally:
        del model.graph.output[len(declared) :]


def _run(reference: Reference, feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs as ONNX Runtime's own values, which hold every type; as Python's for inputs of strings."""
    strings = any(np.asarray(value).dtype.kind in "OUS" for value in feeds.values())
    return reference.run(feeds) if strings else reference.run_raw(feeds)


def _seen(name: str, value: Any) -> tuple[Tensor, np.ndarray | None]:
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            return Tensor(name, OPAQUE, value.shape), None
        return Tensor(name, value.dtype.name, value.shape), value if value.size <= SMALL else None
    if not hasattr(value, "data_type") or not value.is_tensor():
        return Tensor(name, OPAQUE, ()), None
    shape, dtype = tuple(value.shape()), dtype_of(value.data_type())
    if dtype is None:
        return Tensor(name, OPAQUE, shape), None
    small = dtype.name not in EXTENDED and int(np.prod(shape, dtype=np.int64)) <= SMALL
    return Tensor(name, dtype.name, shape), value.numpy() if small else None
