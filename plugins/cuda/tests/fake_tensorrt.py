"""A stand-in for TensorRT's Python package: names and signatures of version 10, numbers by ONNX Runtime's reference.

Engines are the model itself; a context computes it on the fake device, enqueued on a stream.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes  # noqa: F401  # makes bfloat16 known to NumPy
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from collage_evo_cuda.tensorrt import engine
from stand_in import HostFunction

BuilderFlag = Enum("BuilderFlag", ["TF32", "FP16", "BF16"])
DataType = Enum("DataType", ["FLOAT", "HALF", "INT32", "INT64", "BOOL", "BF16"])
TensorIOMode = Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])
Severity = Enum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"])
_TYPES = {onnx.TensorProto.FLOAT: DataType.FLOAT, onnx.TensorProto.INT64: DataType.INT64}


class NetworkDefinitionCreationFlag(IntEnum):
    STRONGLY_TYPED = 1


@dataclass
class Record:
    """What was asked of the library."""

    typed: list[int] = field(default_factory=list)
    flags: list[set[BuilderFlag]] = field(default_factory=list)
    models: list[onnx.ModelProto] = field(default_factory=list)
    refuse: str = ""
    """What the parser says against any model; nothing if it takes it."""
    fail: str = ""
    """What the builder reports in place of an engine."""
    silent: bool = False
    """Whether it gives none without a word."""


class ILogger:
    Severity = Severity

    def log(self, severity: Severity, msg: str) -> None:
        raise NotImplementedError


class Network:
    model: onnx.ModelProto | None = None


class BuilderConfig:
    def __init__(self) -> None:
        self.flags = {BuilderFlag.TF32}  # as documented: on from the start

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.discard(flag)


class Context:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, self._addresses = model, dict[str, int]()
        self._functions: list[HostFunction] = []

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        graph = self._model.graph
        assert self._addresses.keys() == {value.name for value in (*graph.input, *graph.output)}
        function = HostFunction(self._compute)
        self._functions.append(function)
        function.enqueue(stream_handle)
        return True

    def _compute(self) -> None:
        graph = self._model.graph
        feeds = {value.name: self._array(value) for value in graph.input}
        for value, made in zip(graph.output, ReferenceEvaluator(self._model).run(None, feeds), strict=True):
            self._array(value)[...] = made

    def _array(self, value: onnx.ValueInfoProto) -> np.ndarray:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        shape = tuple(size.dim_value for size in value.type.tensor_type.shape.dim)
        raw = (ctypes.c_uint8 * (dtype.itemsize * int(np.prod(shape)))).from_address(self._addresses[value.name])
        return np.frombuffer(raw, dtype).reshape(shape)


class Engine:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._values = {value.name: value for value in (*model.graph.input, *model.graph.output)}

    @property
    def num_io_tensors(self) -> int:
        return len(self._values)

    def get_tensor_name(self, index: int) -> str:
        return list(self._values)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        given = name in {value.name for value in self._model.graph.input}
        return TensorIOMode.INPUT if given else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return _TYPES[self._values[name].type.tensor_type.elem_type]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(size.dim_value for size in self._values[name].type.tensor_type.shape.dim)

    def create_execution_context(self) -> Context:
        return Context(self._model)


def install(patch: pytest.MonkeyPatch, version: int = 10) -> Record:
    """The module is there to be imported, until the patch is undone; version 11 has no flag for typed networks."""
    record, module = Record(), ModuleType("tensorrt")

    class Builder:
        def __init__(self, logger: ILogger) -> None:
            assert isinstance(logger, ILogger)
            self._logger = logger

        def create_network(self, flags: int = 0) -> Network:
            record.typed.append(flags)
            return Network()

        def create_builder_config(self) -> BuilderConfig:
            return BuilderConfig()

        def build_serialized_network(self, network: Network, config: BuilderConfig) -> memoryview | None:
            record.flags.append(config.flags)
            if record.silent:
                return None
            if record.fail:
                self._logger.log(Severity.ERROR, record.fail)
                self._logger.log(Severity.INFO, "and so on")
                return None
            assert network.model is not None
            return memoryview(network.model.SerializeToString())

    class OnnxParser:
        def __init__(self, network: Network, logger: ILogger) -> None:
            assert isinstance(logger, ILogger)
            self._network = network

        def parse(self, model: bytes) -> bool:
            self._network.model = onnx.load_from_string(model)
            record.models.append(self._network.model)
            return not record.refuse

        @property
        def num_errors(self) -> int:
            return 1

        def get_error(self, index: int) -> str:
            return record.refuse

    class Runtime:
        def __init__(self, logger: ILogger) -> None:
            self._logger = logger

        def deserialize_cuda_engine(self, serialized_engine: bytes) -> Engine | None:
            try:
                return Engine(onnx.load_from_string(serialized_engine))
            except Exception:
                self._logger.log(Severity.ERROR, "Serialization assertion failed")
                return None

    flags: Any = NetworkDefinitionCreationFlag if version < 11 else SimpleNamespace()
    named: dict[str, Any] = {
        **{"BuilderFlag": BuilderFlag, "DataType": DataType, "TensorIOMode": TensorIOMode, "ILogger": ILogger},
        **{"Builder": Builder, "OnnxParser": OnnxParser, "Runtime": Runtime},
        "NetworkDefinitionCreationFlag": flags,
    }
    for name, value in named.items():
        setattr(module, name, value)
    patch.setitem(sys.modules, "tensorrt", module)
    forget()
    return record


def forget() -> None:
    """Let go of what was made with a module before."""
    engine._logger.cache_clear()
    engine._runtime.cache_clear()
