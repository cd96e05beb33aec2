"""Properties of the GPU by CUDA's driver, or the reason why there is none. Needs no other library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from collage_evo.errors import UnavailableError
from collage_evo_cuda.driver import CudaError, Driver, cuda_driver

_CAPABILITY = "compute capability"
_MAJOR, _MINOR = 75, 76
"""CUDA's numbers of the attributes that make up the compute capability."""
_COMPUTE_MODE, _SHARED = 20, 0
_Property = TypeVar("_Property")


@cache
def gpu_capability() -> tuple[int, int]:
    """Compute capability of the first GPU, such as (9, 0).

    Raises:
        UnavailableError: there is none; the message says what is missing.
    """
    return _queried(lambda driver: (driver.attribute(_MAJOR), driver.attribute(_MINOR)))


def takes_one_process() -> bool:
    """Whether the first GPU is in a mode for one process at a time, or none: other processes get no context there.

    Raises:
        UnavailableError: there is none; the message says what is missing.
    """
    return _queried(lambda driver: driver.attribute(_COMPUTE_MODE) != _SHARED)


def format_capability(described: str) -> str:
    """The compute capability in the text of :func:`describe_gpu`; empty if it is not there."""
    return described.partition(f"{_CAPABILITY} ")[2].partition(",")[0]


@cache
def describe_gpu() -> str:
    """Model, compute capability and the driver's CUDA version of the first GPU.

    Raises:
        UnavailableError: there is none; the message says what is missing.
    """
    (major, minor), (name, version) = gpu_capability(), _queried(lambda driver: (driver.name(), driver.version()))
    return f"{name}, {_CAPABILITY} {major}.{minor}, CUDA {version // 1000}.{version % 1000 // 10}"


def _queried(ask: Callable[[Driver], _Property]) -> _Property:
    """What the driver tells of its first GPU.

    Raises:
        UnavailableError: there is none, or the driver tells nothing of it.
    """
    try:
        return ask(cuda_driver())
    except CudaError as error:
        raise UnavailableError(f"the NVIDIA driver does not describe its device ({error})") from None
