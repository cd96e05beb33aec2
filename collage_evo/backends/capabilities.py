"""Optional capabilities of a backend: callers test for one by ``isinstance``, and do without it otherwise.

Three more are in files of their own: :class:`~collage_evo.backends.tuning.Tunable`,
:class:`~collage_evo.backends.profiled.HasProfiler` and :class:`~collage_evo.backends.plain.HasPlainFiles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collage_evo.backends.base import Backend
    from collage_evo.backends.variants import Variant


@runtime_checkable
class TakesOpenShapes(Protocol):
    """A backend that takes pieces with tensors that are not static; it loads them as ``DynamicExecutable``."""

    open_inputs: ClassVar[bool]
    """Whether these tensors may be inputs, where only the library knows which shapes the piece can take.

    It then raises for any other shape, and the next run is unaffected. Other backends are no fallback.
    """


@runtime_checkable
class KeepsToCores(Protocol):
    """A backend whose library has a setting for its threads' cores."""

    def keeping_to(self, cores: Sequence[int]) -> Backend:
        """This backend, loading pieces whose threads stay on ``cores``, one each, the caller's on the first.

        Other pieces in the process may have other cores.
        """
        ...


@runtime_checkable
class StandsOnOthers(Protocol):
    """A backend that has others build and run the parts of its pieces.

    It is no library that users call by itself, so it is no baseline and no fallback.
    """

    least_threads: ClassVar[int]
    """Targets with fewer threads have no use for it."""

    def on_threads(self, threads: int) -> Backend:
        """This backend with the variants that exist on a target with ``threads`` threads."""
        ...

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        """The backend and variant that build and run the parts of ``variant``."""
        ...


@runtime_checkable
class RunsPartsInParallel(Protocol):
    """A backend whose pieces have lanes: sequences of steps that run at the same time."""

    def lanes(self, workdir: Path) -> tuple[tuple[str, ...], ...]:
        """The steps of each lane of a built piece as text; ``workdir`` as for ``load``."""
        ...


def takes_open_inputs(backend: Backend) -> bool:
    """Whether it takes pieces whose inputs are not static, and refuses shapes that they cannot take."""
    return not closed_reason(backend)


def closed_reason(backend: Backend) -> str:
    """Why it takes no pieces whose inputs are not static; empty if it does."""
    if not isinstance(backend, TakesOpenShapes):
        return "it compiles for fixed shapes"
    return "" if backend.open_inputs else "it does not refuse what the piece cannot take"


def lanes_of(backend: Backend, workdir: Path) -> tuple[tuple[str, ...], ...]:
    """The steps of each lane of a built piece; empty where none run at the same time."""
    return backend.lanes(workdir) if isinstance(backend, RunsPartsInParallel) else ()
