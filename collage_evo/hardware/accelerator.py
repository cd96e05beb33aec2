"""The contract of an accelerator, which a package of its own serves: how it is described, checked, timed and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar

from collage_evo.errors import UnavailableError

GROUP = "collage_evo.accelerators"
"""The entry-point group: ``name = "package.module:Class"``, where ``name`` is a target's device."""
_INSTALL = {"cuda": "make gpu, or pip install ./plugins/cuda"}


class Accelerator(ABC):
    """What has memory, a clock and programs of its own beside the host's. Stateless."""

    flush_bytes: ClassVar[tuple[int, int]]
    """The least and the most bytes that it writes between two runs of a region, whose weights are then cold."""

    @abstractmethod
    def describe(self) -> str:
        """The model and whatever else code and costs depend on.

        Raises:
            UnavailableError: it is not there; the message says what is missing.
        """

    @abstractmethod
    def require(self) -> None:
        """Make sure that several measuring processes can use it.

        Raises:
            UnavailableError: they cannot; the message says what to do.
        """

    @abstractmethod
    def runs_code_for(self, described: str) -> bool:
        """Whether the one here runs what was compiled where :meth:`describe` said ``described``. Raises as it."""

    @abstractmethod
    def runner(self) -> type[Any]:
        """The class of runners, derived from :class:`collage_evo.runtime.runner.Runner`, of programs for it."""

    @abstractmethod
    def borrowed(self, arrays: Mapping[str, Any]) -> AbstractContextManager[Mapping[str, Any]]:
        """The arrays in its memory as a runner's ``run_there`` takes them, in a context that has the accelerator to
        itself and ends when all its work has run.

        Raises:
            InputError: one is no array in its memory.
        """

    @abstractmethod
    def time_copies(self, nbytes: int, there: bool, runs: int) -> tuple[float, ...]:
        """Milliseconds of each of ``runs`` copies of ``nbytes`` from the host's memory, or back."""

    @abstractmethod
    def harness(self) -> Any:
        """Its part of the conformance suite, a :class:`collage_evo.testing.buffers.Harness`."""


def devices() -> tuple[str, ...]:
    """Names of the devices that installed plug-ins serve, and of those that plug-ins of this project would."""
    return tuple(dict.fromkeys([*_INSTALL, *sorted(one.name for one in entry_points(group=GROUP))]))


@cache
def accelerator_of(device: str) -> Accelerator:
    """The accelerator that a target's ``device`` names.

    Raises:
        UnavailableError: no installed package serves it; the message says what to install.
    """
    found: Sequence[Any] = tuple(entry_points(group=GROUP, name=device))
    if not found:
        install = f": {_INSTALL[device]}" if device in _INSTALL else ""
        raise UnavailableError(f"the plug-in for {device} is not installed{install}")
    accelerator: Accelerator = found[0].load()()
    return accelerator
