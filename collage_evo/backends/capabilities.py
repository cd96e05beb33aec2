"""Optional capabilities of a backend: callers test for one by ``isinstance``, and do without it otherwise.

Three more are in files of their own: :class:`~collage_evo.backends.tuning.Tunable`,
:class:`~collage_evo.backends.profiled.HasProfiler` and :class:`~collage_evo.backends.plain.HasPlainFiles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from collage_evo.graph.ir.graph import COMPOSITE, Graph, NodeSet, members

if TYPE_CHECKING:
    from collage_evo.backends.base import Backend
    from collage_evo.backends.variants import Variant


@runtime_checkable
class TakesOpenShapes(Protocol):
    """A backend that takes pieces with tensors that are not static; it loads them as ``DynamicExecutable``."""

    refuses_shapes: ClassVar[bool]
    """Whether pieces raise for shapes of inputs that they cannot take, also where positions counted from a shape lie
    outside of a table, and the next run is unaffected.

    Other backends are no fallback, and get only shapes that the fallback has run: a session also runs the first
    request of each shape there. They take no piece in which a size depends on more than the shapes of the model's
    inputs.
    """


@runtime_checkable
class KeepsToCores(Protocol):
    """A backend whose library has a setting for its threads' cores."""

    def keeping_to(self, cores: Sequence[int]) -> Backend:
        """This backend, loading pieces whose threads stay on ``cores``, one each, the caller's on the first.

        Other pieces in the process may have other cores.
        """


@runtime_checkable
class StandsOnOthers(Protocol):
    """A backend that has others build and run the parts of its pieces.

    It is no library that users call by itself, so it is no baseline and no fallback.
    """

    least_threads: ClassVar[int]
    """Targets with fewer threads have no use for it."""

    def on_threads(self, threads: int) -> Backend:
        """This backend with the variants that exist on a target with ``threads`` threads."""

    def stands_on(self, variant: Variant) -> tuple[str, str]:
        """The backend and variant that build and run the parts of ``variant``."""


@runtime_checkable
class RunsPartsInParallel(Protocol):
    """A backend whose pieces have lanes: sequences of steps that run at the same time."""

    def lanes(self, workdir: Path) -> tuple[tuple[str, ...], ...]:
        """The steps of each lane of a built piece as text; ``workdir`` as for ``load``."""


def refuses_shapes(backend: Backend) -> bool:
    """Whether it takes pieces whose inputs are not static, and refuses shapes that they cannot take."""
    return isinstance(backend, TakesOpenShapes) and backend.refuses_shapes


def closed_reason(backend: Backend) -> str:
    """Why it takes no pieces whose inputs are not static; empty if it does."""
    return "" if isinstance(backend, TakesOpenShapes) else "it compiles for fixed shapes"


def by_values_reason(backend: Backend, graph: Graph, nodes: NodeSet) -> str:
    """Why a backend that takes open shapes and refuses none does not take ``nodes``: a shape in them may depend on
    more than those of the model's inputs. Empty if it takes them."""
    if closed_reason(backend) or refuses_shapes(backend):
        return ""
    inside = (graph.nodes[index] for index in members(nodes) if graph.is_open)
    several = (node.name for node in inside if node.domain == COMPOSITE)
    unknown = (one for one in graph.boundary(nodes)[0] if not graph.tensors[one].static)
    name = next(chain(several, unknown), "")
    return name and f"shapes in {name} may depend on values, and it does not refuse what it cannot take"


def lanes_of(backend: Backend, workdir: Path) -> tuple[tuple[str, ...], ...]:
    """The steps of each lane of a built piece; empty where none run at the same time."""
    return backend.lanes(workdir) if isinstance(backend, RunsPartsInParallel) else ()
