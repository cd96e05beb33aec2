"""TensorRT's builder and runtime: serialised engines from models, and calls of engines on a stream.

Written for TensorRT 10 and 11, with strongly typed networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from collage_evo.backends.checks import require_borders
from collage_evo.errors import CollageError, InputError
from collage_evo.graph.ir.graph import Tensor
from collage_evo_cuda.device import DeviceArray

_DTYPES = {"HALF": "float16", "FLOAT": "float32", "BF16": "bfloat16", "BOOL": "bool"}


def build_engine(model: bytes, tf32: bool) -> bytes:
    """The model compiled for this machine's GPU.

    Raises:
        CollageError: TensorRT does not take the model; the message has its reason.
    """
    trt = _library()
    _logger().last = ""  # an error about another engine is no reason here
    builder = trt.Builder(_logger())
    # Version 11 has only typed networks, and no flag for them.
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = trt.OnnxParser(network, _logger())
    if not parser.parse(model):
        reasons = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        raise CollageError(reasons[0] if reasons else "the parser refuses the model")
    config = builder.create_builder_config()
    # On by default, it lets engines round the factors of products.
    (config.set_flag if tf32 else config.clear_flag)(trt.BuilderFlag.TF32)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise CollageError(_logger().last or "no engine could be built")
    return bytes(engine)


class LoadedEngine:
    """An engine; each bound call has its own context."""

    capturable = True

    def __init__(self, data: bytes, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """
        Raises:
            InputError: ``data`` is no engine of this version and GPU, or has other inputs and outputs.
        """
        trt = _library()
        _logger().last = ""
        self._engine = _runtime().deserialize_cuda_engine(data)
        if self._engine is None:
            raise InputError(f"tensorrt: {_logger().last or 'the engine cannot be read'}: build the region anew")
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        modes = {name: self._engine.get_tensor_mode(name) for name in names}
        self._inputs = [name for name in names if modes[name] == trt.TensorIOMode.INPUT]
        self._outputs = [name for name in names if modes[name] == trt.TensorIOMode.OUTPUT]
        require_borders("tensorrt", [self._type(name) for name in self._inputs], inputs)
        require_borders("tensorrt", [self._type(name) for name in self._outputs], outputs)

    def _type(self, name: str) -> tuple[str, list[int]]:
        dtype = self._engine.get_tensor_dtype(name).name
        return _DTYPES.get(dtype, dtype.lower()), list(self._engine.get_tensor_shape(name))

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        context = self._engine.create_execution_context()
        if context is None:
            raise CollageError(f"tensorrt: {_logger().last or 'no context could be made'}")
        arrays = (*inputs, *outputs)
        for name, array in zip((*self._inputs, *self._outputs), arrays, strict=True):
            if not context.set_tensor_address(name, array.pointer):
                raise CollageError(f"tensorrt does not take the array for {name}")
        return partial(_enqueue, context.execute_async_v3, arrays[0].stream)


def _enqueue(execute: Callable[[int], bool], stream: int) -> None:
    # Shapes and addresses stay the same: from the second call on nothing is allocated.
    if not execute(stream):
        raise CollageError(f"tensorrt: {_logger().last or 'the engine could not be enqueued'}")


def _library() -> Any:
    import tensorrt

    return tensorrt


@cache
def _logger() -> Any:
    """A logger that stores the library's last error instead of printing it."""
    import tensorrt

    class Logger(tensorrt.ILogger):
        def __init__(self) -> None:
            tensorrt.ILogger.__init__(self)
            self.last = ""

        def log(self, severity: Any, message: str) -> None:
            levels = tensorrt.ILogger.Severity
            if severity in (levels.ERROR, levels.INTERNAL_ERROR):
                self.last = message

    return Logger()


@cache
def _runtime() -> Any:
    return _library().Runtime(_logger())
