"""Device arrays as inputs and outputs of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collage_evo.errors import InputError, one_line
from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.memory import place
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.dlpack import borrow


def as_device_array(name: str, value: Any, stream: int) -> DeviceArray:
    """The input ``value`` without a copy, once work on ``stream`` may read it.

    Raises:
        InputError: it has no ``__dlpack__``, or is not contiguous.
    """
    if isinstance(value, DeviceArray):
        return value
    try:
        array, place = borrow(value, stream)
    except (AttributeError, BufferError, RuntimeError, TypeError) as error:
        raise InputError(f"input '{name}' offers no array through DLPack: {one_line(error)}") from error
    if not array.flags.c_contiguous:
        raise InputError(f"input '{name}' is not contiguous: make it contiguous")
    return DeviceArray(array.ctypes.data, array.shape, array.dtype.name, place, stream, array)


def arrays_on(device: Device, tensors: Sequence[Tensor]) -> dict[str, DeviceArray]:
    """New arrays for ``tensors`` by name, in one piece of memory."""
    plan = place({tensor.name: tensor.nbytes for tensor in tensors}, lambda one, other: True, device.alignment)
    arena = device.arena(plan.size)
    return {tensor.name: arena(plan.offsets[tensor.name], tensor.shape, tensor.dtype) for tensor in tensors}


def require_place(name: str, array: DeviceArray, place: tuple[int, int]) -> None:
    """
    Raises:
        InputError: ``array`` is on another device.
    """
    if array.place != place:
        raise InputError(
            f"input '{name}' lies on DLPack's device {array.place}, this session on {place}: "
            "move it there, or call run"
        )
