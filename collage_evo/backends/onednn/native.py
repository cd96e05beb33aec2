"""oneDNN's C API (version 3) by ctypes: takes shapes and weights, gives one primitive as a call on plain arrays.

Constants are those of ``dnnl_types.h``. Where a primitive wants another layout than a plain one, a reorder goes
before or behind it; weights are reordered once.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

DISTRIBUTION = "onednn-cpu-gomp"

_ANY, _PLAIN = 1, {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7}
"""Format tags: the primitive's choice, and row-major by number of axes."""
_F32, _CPU, _IN_ORDER, _INFERENCE = 3, 1, 1, 96
_DIRECT, _RELU, _SCALE_AND_SHIFT = 1, 0x20, 6
_SRC, _DST, _WEIGHTS, _BIAS, _SCALE, _SHIFT = 1, 17, 33, 41, 51, 52
_WANTED = {_SRC: 129, _WEIGHTS: 131, _DST: 133}
"""What asks a primitive for the layout of each argument."""

Step = tuple[Any, int, Any]
"""Primitive, number of arguments, arguments."""


class _Argument(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int), ("memory", ctypes.c_void_p))


class _Handle:
    """An object of the library, destroyed together with this one."""

    def __init__(self, kind: str, create: str, *arguments: Any) -> None:
        self._as_parameter_ = ctypes.c_void_p()
        _check(getattr(_library(), create)(ctypes.byref(self._as_parameter_), *arguments), create)
        self._destroy = getattr(_library(), f"dnnl_{kind}_destroy")

    def __del__(self) -> None:
        if hasattr(self, "_destroy"):
            self._destroy(self._as_parameter_)


class Primitive:
    """One operator with its constants in the layout it wants. ``bind`` gives a call on the caller's arrays."""

    def __init__(self, create: str, arguments: Sequence[Any], constants: Mapping[int, np.ndarray]) -> None:
        self._description = _Handle("primitive_desc", f"dnnl_{create}_primitive_desc_create", *arguments)
        self._primitive = _Handle("primitive", "dnnl_primitive_create", self._description)
        self._constants: dict[int, _Memory] = {}
        for index, array in constants.items():
            plain = _Memory(array)
            self._constants[index] = self._suited(index, plain)
            if self._constants[index] is not plain:
                _execute([_reorder(plain, self._constants[index])])

    def bind(self, source: np.ndarray, target: np.ndarray, threads: int) -> Callable[[], None]:
        given, asked = _Memory(source), _Memory(target)
        read, written = self._suited(_SRC, given), self._suited(_DST, asked)
        steps = [] if read is given else [_reorder(given, read)]
        steps.append(_step(self._primitive, {_SRC: read, _DST: written, **self._constants}))
        steps += [] if written is asked else [_reorder(written, asked)]
        return partial(_Run(steps, threads, (self, given, asked, read, written)))

    def _suited(self, index: int, plain: _Memory) -> _Memory:
        """``plain`` if the primitive takes its layout, else new memory in the layout that it wants."""
        if index not in _WANTED:
            return plain
        library = _library()
        wanted = ctypes.c_void_p(library.dnnl_primitive_desc_query_md(self._description, _WANTED[index], 0))
        if library.dnnl_memory_desc_equal(wanted, plain.description):
            return plain
        size = library.dnnl_memory_desc_get_size(wanted)
        return _Memory(np.zeros(-(-size // 4), np.float32), wanted)


class _Memory:
    """An array and how the library is to see it; ``description`` is None for the plain layout."""

    def __init__(self, array: np.ndarray, description: Any = None) -> None:
        self._array = array
        self.description = description or describe(array.shape)
        data = ctypes.c_void_p(array.ctypes.data)
        self.handle = _Handle("memory", "dnnl_memory_create", self.description, _engine(), data)


class _Run:
    def __init__(self, steps: Sequence[Step], threads: int, kept: Sequence[object]) -> None:
        self._steps, self._threads, self._kept = steps, threads, kept

    def __call__(self) -> None:
        # The calling thread may be another one each time.
        use_threads(self._threads)
        _execute(self._steps)


def use_threads(threads: int) -> None:
    """How many threads primitives that the calling thread makes or runs may use from now on."""
    _openmp().omp_set_num_threads(threads)


def convolution(
    shapes: tuple[Sequence[int], Sequence[int]],
    weights: np.ndarray,
    bias: np.ndarray | None,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    *,
    relu: bool,
) -> Primitive:
    """A convolution of inputs and outputs of ``shapes``; ``window`` is strides, dilations, pads as in ONNX.

    Weights of a grouped convolution have the group as an axis of their own in front.
    """
    strides, dilations, pads = window
    arguments: list[Any] = [_engine(), _INFERENCE, _DIRECT]
    arguments += [describe(shapes[0], _ANY), describe(weights.shape, _ANY)]
    arguments += [None if bias is None else describe(bias.shape), describe(shapes[1], _ANY)]
    arguments += [_dims(strides), _dims([d - 1 for d in dilations])]
    arguments += [_dims(pads[: len(strides)]), _dims(pads[len(strides) :]), _epilogue(relu)]
    return Primitive("convolution_forward", arguments, _given({_WEIGHTS: weights, _BIAS: bias}))


def product(rows: int, weights: np.ndarray, bias: np.ndarray | None, *, relu: bool) -> Primitive:
    """``rows`` rows times constant ``weights`` (input by output features), plus ``bias`` (1 by outputs)."""
    inner, outer = weights.shape
    arguments: list[Any] = [_engine(), describe((rows, inner)), describe(weights.shape, _ANY)]
    arguments += [None if bias is None else describe(bias.shape), describe((rows, outer)), _epilogue(relu)]
    return Primitive("matmul", arguments, _given({_WEIGHTS: weights, _BIAS: bias}))


def layer_normalization(shape: Sequence[int], scale: np.ndarray, shift: np.ndarray, epsilon: float) -> Primitive:
    """Normalisation over the last axis."""
    arguments: list[Any] = [_engine(), _INFERENCE, describe(shape), describe(shape), None]
    arguments += [ctypes.c_float(epsilon), _SCALE_AND_SHIFT, None]
    return Primitive("layer_normalization_forward", arguments, {_SCALE: scale, _SHIFT: shift})


def describe(shape: Sequence[int], tag: int = 0) -> _Handle:
    """float32 of ``shape`` in a plain layout, or in that of a format tag."""
    create, tag = "dnnl_memory_desc_create_with_tag", tag or _PLAIN[len(shape)]
    return _Handle("memory_desc", create, len(shape), _dims(shape), _F32, tag)


def _given(constants: Mapping[int, np.ndarray | None]) -> dict[int, np.ndarray]:
    return {index: array for index, array in constants.items() if array is not None}


def _epilogue(relu: bool) -> _Handle:
    attributes = _Handle("primitive_attr", "dnnl_primitive_attr_create")
    if relu:
        library, operations = _library(), _Handle("post_ops", "dnnl_post_ops_create")
        zero = ctypes.c_float(0.0)
        _check(library.dnnl_post_ops_append_eltwise(operations, _RELU, zero, zero), "post-op")
        _check(library.dnnl_primitive_attr_set_post_ops(attributes, operations), "post-op")
    return attributes


def _reorder(source: _Memory, target: _Memory) -> Step:
    create = "dnnl_reorder_primitive_desc_create"
    arguments = (source.description, _engine(), target.description, _engine(), None)
    description = _Handle("primitive_desc", create, *arguments)
    return _step(_Handle("primitive", "dnnl_primitive_create", description), {_SRC: source, _DST: target})


def _step(primitive: _Handle, memories: Mapping[int, _Memory]) -> Step:
    arguments = [_Argument(index, memory.handle._as_parameter_) for index, memory in memories.items()]
    return primitive, len(arguments), (_Argument * len(arguments))(*arguments)


def _execute(steps: Sequence[Step]) -> None:
    execute, stream = _library().dnnl_primitive_execute, _stream()
    for primitive, count, arguments in steps:
        _check(execute(primitive, stream, count, arguments), "dnnl_primitive_execute")


def _dims(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * 12)(*values)


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what} gives status {status}")


@cache
def _library() -> Any:
    files = importlib.metadata.distribution(DISTRIBUTION).files or ()
    library = ctypes.CDLL(str(next(file.locate() for file in files if file.name == "libdnnl.so.3")))
    library.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
    library.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
    return library


@cache
def _openmp() -> Any:
    _library()
    return ctypes.CDLL("libgomp.so.1")


@cache
def _engine() -> _Handle:
    return _Handle("engine", "dnnl_engine_create", _CPU, ctypes.c_size_t(0))


@cache
def _stream() -> _Handle:
    return _Handle("stream", "dnnl_stream_create", _engine(), _IN_ORDER)
