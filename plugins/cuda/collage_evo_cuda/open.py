"""The devices of this process: one of each, shared by all of its sessions."""

from __future__ import annotations

from threading import Lock

from collage_evo.errors import UnavailableError
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.driver import cuda_driver

_lock = Lock()
_open: dict[str, Device] = {}


def open_device(name: str) -> Device:
    """The device of that name, the same object each time until it is closed.

    Raises:
        UnavailableError: it is not there; the message names what is missing.
        CollageError: it is there and cannot be used.
    """
    if name != "cuda":
        raise UnavailableError(f"there is no device {name}: write cuda")
    with _lock:
        if name not in _open or _open[name].closed:
            _open[name] = Device(cuda_driver())
        return _open[name]
