"""A stand-in for cuDNN's frontend: the same names and arguments as version 1.32, numbers by NumPy on the fake device.

It wants calls in the order in which the real one does, refuses engines by their notes, runs on a handle's stream.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from collage_evo.codec import from_json, to_json
from collage_evo_cuda.cudnn.emit import handle_on
from collage_evo_cuda.cudnn.plan import Operation, Step, View
from cudnn_plan import run_step
from stand_in import HostFunction

DataType = Enum("DataType", ["FLOAT", "HALF", "BFLOAT16"])
Note = Enum("Note", ["TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC"])
Heuristic = Enum("Heuristic", ["A", "B", "FALLBACK"])
_DTYPES = {DataType.FLOAT: "float32", DataType.HALF: "float16", DataType.BFLOAT16: "bfloat16"}
ENGINES: tuple[tuple[int, frozenset[Note]], ...] = (
    (20_401, frozenset()),  # one of the frontend's own, which compiles when it first runs
    (31, frozenset({Note.NONDETERMINISTIC})),
    (32, frozenset({Note.DOWN_CONVERT_INPUTS})),
    (33, frozenset({Note.REDUCED_PRECISION_REDUCTION})),
    (51, frozenset({Note.TENSOR_CORE})),
    (11, frozenset()),
)
WORKSPACE = 640


class NotSupported(Exception):
    """As in the real module, no kind of RuntimeError."""


@dataclass
class Tensor:
    view: View
    output: bool = False

    def set_output(self, value: bool) -> Tensor:
        self.output = value
        return self

    def set_uid(self, uid: int) -> Tensor:
        self.view = replace(self.view, buffer=str(uid))
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.view = replace(self.view, shape=tuple(dim))
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.view = replace(self.view, strides=tuple(stride))
        return self

    def set_data_type(self, data_type: DataType) -> Tensor:
        self.view = replace(self.view, dtype=_DTYPES[data_type])
        return self


@dataclass
class Handle:
    stream: int = 0


@dataclass
class Record:
    """What was asked of the module."""

    built: list[int] = field(default_factory=list)
    compiled: int = 0
    deserialised: int = 0
    handles: int = 0


class Graph:
    def __init__(
        self,
        *,
        record: Record,
        io_data_type: DataType | None = None,
        intermediate_data_type: DataType | None = None,
        compute_data_type: DataType | None = None,
        handle: Handle | None = None,
        device_property: object = None,
        sm_version: int | None = None,
    ) -> None:
        assert (handle is None) != (device_property is None)
        assert (device_property is None) == (sm_version is None)
        self._record = record
        self._tensors: list[Tensor] = []
        self._operations: list[tuple[str, list[Tensor], Tensor, Mapping[str, Any]]] = []
        self._stage: list[str] = []
        self._refused: set[Note] = set()
        self._step: Step | None = None
        self._functions: list[HostFunction] = []  # a stream or a capture may run them as long as the graph is held

    def tensor(self, dim: list[int], stride: list[int], data_type: DataType, name: str, uid: int) -> Tensor:
        assert len(dim) == len(stride)
        assert len(dim) >= 3
        made = Tensor(View(f"u{uid}", tuple(dim), tuple(stride), _DTYPES[data_type], str(uid)))
        self._tensors.append(made)
        return made

    def _make(self, kind: str, inputs: Sequence[Tensor], numbers: Mapping[str, Any]) -> Tensor:
        made = Tensor(View(f"v{len(self._operations)}", (), (), "float32"))
        self._operations.append((kind, list(inputs), made, numbers))
        return made

    def conv_fprop(self, image: Tensor, weight: Tensor, pre_padding: list[int], post_padding: list[int],
                   stride: list[int], dilation: list[int]) -> Tensor:  # fmt: skip
        assert len(stride) == len(image.view.shape) - 2
        numbers = {"pre_padding": pre_padding, "post_padding": post_padding, "stride": stride, "dilation": dilation}
        return self._make("conv_fprop", (image, weight), numbers)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, pre_padding: list[int], post_padding: list[int],
                   stride: list[int], dilation: list[int]) -> Tensor:  # fmt: skip
        numbers = {"pre_padding": pre_padding, "post_padding": post_padding, "stride": stride, "dilation": dilation}
        return self._make("conv_dgrad", (loss, filter), numbers)

    def matmul(self, A: Tensor, B: Tensor) -> Tensor:
        assert len(A.view.shape) == 3
        return self._make("matmul", (A, B), {})

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor, attn_scale: float, generate_stats: bool, name: str,
             bias: Tensor | None = None) -> tuple[Tensor, None]:  # fmt: skip
        assert generate_stats is False
        assert {one.view.dtype for one in (q, k, v)} <= {"float16", "bfloat16"}
        assert all(one.view.strides[-1] == 1 for one in (q, k, v))
        tensors = (q, k, v) if bias is None else (q, k, v, bias)
        return self._make("sdpa", tensors, {"attn_scale": attn_scale}), None

    def relu(self, input: Tensor, negative_slope: float | None = None, lower_clip: float | None = None,
             upper_clip: float | None = None) -> Tensor:  # fmt: skip
        numbers = {"negative_slope": negative_slope, "lower_clip": lower_clip, "upper_clip": upper_clip}
        return self._make("relu", (input,), {key: value for key, value in numbers.items() if value is not None})

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._make("add", (a, b), {})

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        return self._make("mul", (a, b), {})

    def max(self, input0: Tensor, input1: Tensor) -> Tensor:
        return self._make("max", (input0, input1), {})

    def identity(self, input: Tensor) -> Tensor:
        return self._make("identity", (input,), {})

    def sigmoid(self, input: Tensor) -> Tensor:
        return self._make("sigmoid", (input,), {})

    def validate(self) -> None:
        self._next("", "validate")

    def build_operation_graph(self) -> None:
        self._next("validate", "build_operation_graph")

    def create_execution_plans(self, heuristics: list[Heuristic]) -> None:
        assert heuristics
        self._next("build_operation_graph", "create_execution_plans")

    def deselect_numeric_notes(self, notes: list[Note]) -> None:
        self._refused |= set(notes)

    def check_support(self) -> None:
        self._next("create_execution_plans", "check_support")
        if all(notes & self._refused for _, notes in ENGINES):
            raise NotSupported("No execution plans support the graph.")

    def _next(self, after: str, stage: str) -> None:
        assert (self._stage[-1] if self._stage else "") == after, (self._stage, stage)
        self._stage.append(stage)

    def get_execution_plan_count(self) -> int:
        return len(ENGINES)

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[str, int]]:
        return ENGINES[index][0], {}

    def build_plan_at_index(self, index: int) -> None:
        assert self._stage[-1] == "check_support"
        engine, notes = ENGINES[index]
        if notes & self._refused:
            raise NotSupported("Deselecting execution plan")
        self._record.built.append(engine)
        self._record.compiled += 1
        operations = tuple(
            Operation(kind, tuple(one.view.name for one in inputs), made.view.name, numbers)
            for kind, inputs, made, numbers in self._operations
        )
        views = [tensor.view for tensor in self._tensors]
        views += [made.view for _, _, made, _ in self._operations]
        self._step = Step(operations, tuple(views))

    def get_workspace_size(self) -> int:
        return WORKSPACE

    def serialize(self) -> list[int]:
        assert self._step is not None
        return list(to_json(self._step).encode())

    def deserialize(self, handle: Handle, data: bytes) -> None:
        self._record.deserialised += 1
        self._step = from_json(data, Step)

    def execute(self, tensor_dict: dict[int, int], workspace: int, handle: Handle) -> None:
        """Enqueued as it is: pointers are read when it runs."""
        assert self._step is not None
        step = self._step
        assert {str(uid) for uid in tensor_dict} == {view.buffer for view in step.tensors if view.buffer}
        assert workspace % 256 == 0
        function = HostFunction(lambda: run_step(step, _memory(step, tensor_dict)))
        self._functions.append(function)
        function.enqueue(handle.stream)


def _memory(step: Step, pointers: Mapping[int, int]) -> dict[str, np.ndarray]:
    memory = {}
    for view in step.tensors:
        if view.buffer and view.buffer not in memory:
            last = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
            dtype = np.dtype(view.dtype)
            raw = (ctypes.c_uint8 * ((last + 1) * dtype.itemsize)).from_address(pointers[int(view.buffer)])
            memory[view.buffer] = np.frombuffer(raw, dtype)
    return memory


def install(patch: pytest.MonkeyPatch) -> Record:
    """The module is there to be imported, until the patch is undone."""
    record, module = Record(), ModuleType("cudnn")

    def create_handle() -> Handle:
        record.handles += 1
        return Handle()

    def set_stream(handle: Handle, stream: int) -> None:
        handle.stream = stream

    named: dict[str, Any] = {
        "data_type": DataType,
        "numerical_note": Note,
        "heur_mode": Heuristic,
        "cudnnGraphNotSupportedError": NotSupported,
        "create_handle": create_handle,
        "set_stream": set_stream,
        "create_device_properties": lambda device: f"device {device}",
        "pygraph": lambda **given: Graph(record=record, **given),
    }
    for name, value in named.items():
        setattr(module, name, value)
    patch.setitem(sys.modules, "cudnn", module)
    handle_on.cache_clear()
    return record
