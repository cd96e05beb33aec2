"""Inputs and outputs bound to memory before a run, with the methods of ``onnxruntime.IOBinding``."""

from __future__ import annotations

import copy
import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from collage_evo.errors import InputError, named_line
from collage_evo.graph.ir.elements import dtype_numbered, is_packed
from collage_evo.graph.reference.ort_values import from_ort_value, to_ort_value
from collage_evo.hardware.target import CPU

Run = Callable[[Sequence[str], Mapping[str, Any]], list[Any]]


class IOBinding:
    """Memory of the host that a session reads inputs from and writes outputs to, at each ``run_with_iobinding``.

    The session reads an input when it runs, so later writes to the bound memory count. The session has its own
    buffers, so every bound tensor is copied.
    """

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._names = {"input": tuple(inputs), "output": tuple(outputs)}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        """Target of each bound output: an OrtValue, an array over the caller's memory, or None for a new array."""
        self._made: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array. Raises ``InputError``: there is no such input."""
        self._inputs[self._known("input", name)] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Bind an input to an ``onnxruntime.OrtValue`` of the host. Raises as :meth:`bind_output`."""
        self._inputs[self._known("input", name)] = _on_host(name, ortvalue)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory at an address; arguments and errors as :meth:`bind_output`."""
        _require_host(name, device_type)
        self._inputs[self._known("input", name)] = _array_at(buffer_ptr, name, shape, element_type)

    def bind_output(
        self,
        name: str,
        device_type: str = CPU,
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to memory at an address, or to a new array for each run.

        Args:
            name: of the output.
            device_type: ``cpu``.
            device_id: taken for ONNX Runtime's sake, and not used.
            element_type: NumPy's type, or ONNX's number of it; needed with ``buffer_ptr``.
            shape: sizes; needed with ``buffer_ptr``.
            buffer_ptr: address of contiguous memory that stays valid as long as it is bound.

        Raises:
            InputError: there is no such output, or the memory is not the host's, or its type or shape is missing or
                none.
        """
        _require_host(name, device_type)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise InputError(f"'{name}' is bound to memory of no type or shape: give element_type and shape")
        fresh = buffer_ptr is None or shape is None
        target = None if fresh else _array_at(buffer_ptr, name, shape, element_type)
        self._outputs[self._known("output", name)] = target

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Bind an output to an ``onnxruntime.OrtValue`` of the host. Raises as :meth:`bind_output`."""
        self._outputs[self._known("output", name)] = _on_host(name, ortvalue)

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: memory is the host's."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: memory is the host's."""

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs, and drop those of the last run."""
        self._outputs.clear()
        self._made.clear()

    def get_outputs(self) -> list[Any]:
        """Bound outputs of the last run as ``onnxruntime.OrtValue``, in the order in which they were bound."""
        return [as_ort_value(name, value) for name, value in zip(self._outputs, self._made, strict=False)]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Bound outputs of the last run as arrays that the caller owns, in the order in which they were bound."""
        return [_copied(value) for value in self._made]

    def fill(self, run: Run) -> None:
        """Run on the bound inputs, and write every bound output to its memory.

        Raises:
            InputError: as ``run``; or no output is bound, or one has another type or shape than its memory.
        """
        if not self._outputs:
            raise InputError("no output is bound: call bind_output before")
        self._made.clear()
        values = run(list(self._outputs), self._inputs)
        targets = self._outputs.items()
        self._made += [_put(name, value, target) for (name, target), value in zip(targets, values, strict=True)]

    def _known(self, kind: str, name: str) -> str:
        if not isinstance(name, str) or name not in self._names[kind]:
            raise InputError(f"no {kind} '{name}': this model has {', '.join(self._names[kind])}")
        return name


def as_ort_value(name: str, value: Any) -> Any:
    """An output as an ``onnxruntime.OrtValue``.

    Raises:
        InputError: it is no tensor, so that ONNX Runtime's interface cannot make an OrtValue of it.
    """
    if isinstance(value, np.ndarray):
        return to_ort_value(value)
    if hasattr(value, "data_ptr"):
        return value
    raise InputError(f"output '{name}' is no tensor and cannot be an OrtValue: call run")


def _copied(value: Any) -> Any:
    return np.array(from_ort_value(value)) if hasattr(value, "data_ptr") else copy.deepcopy(value)


def _put(name: str, value: Any, target: Any) -> Any:
    """``value``, written into ``target`` where there is one."""
    if target is None:
        return value
    if not isinstance(value, np.ndarray):
        raise InputError(f"output '{name}' is no tensor and cannot be bound to memory: bind it by its name alone")
    destination = target
    if not isinstance(target, np.ndarray):
        destination = _array_at(target.data_ptr(), name, target.shape(), target.element_type())
    if (value.dtype, value.shape) != (destination.dtype, destination.shape):
        value_type, bound_type = (f"{array.dtype}{list(array.shape)}" for array in (value, destination))
        raise InputError(f"output '{name}' is {value_type}; it is bound to {bound_type}")
    np.copyto(destination, value)
    return target


def _array_at(address: Any, name: str, shape: Any, element_type: Any) -> np.ndarray:
    """An array over the numbers at ``address``."""
    try:
        dtype = np.dtype(dtype_numbered(element_type) if isinstance(element_type, int) else element_type)
        if is_packed(dtype) or dtype.hasobject:
            raise InputError(f"'{name}' has elements of {dtype}, which have no addresses: bind an array")
        memory = (ctypes.c_uint8 * (math.prod(shape) * dtype.itemsize)).from_address(address)
        if len(memory) and not 0 < address < 2**63:
            raise ValueError(f"there is no memory at {address}")
        return np.ndarray(tuple(shape), dtype, memoryview(memory))
    except (TypeError, ValueError, OverflowError, MemoryError, AttributeError) as error:
        text = f"give its element type, its sizes and the address of its memory ({named_line(error)})"
        raise InputError(f"'{name}' cannot be bound: {text}") from error


def _on_host(name: str, ortvalue: Any) -> Any:
    if not hasattr(ortvalue, "device_name"):
        raise InputError(f"'{name}' is bound to {type(ortvalue).__name__}: give an onnxruntime.OrtValue")
    _require_host(name, ortvalue.device_name())
    return ortvalue


def _require_host(name: str, device: str) -> None:
    if not isinstance(device, str) or device.lower() != CPU:
        raise InputError(f"'{name}' is bound to {device}: bind memory of the host, or call run_on_device")
